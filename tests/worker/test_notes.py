"""What a worker has found out about places outlives it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.rules.marks import FIRST_FRESH, Horizon, from_the_start, line_of
from holdfast.store import attempts, workers
from holdfast.store.attempts import Demand
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.store.workers import NewWorker
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import claims
from holdfast.worker.bundles import Bundles
from holdfast.worker.claims import Claims
from tests.store.scene import KIND, Scene

QUEUE = "default"


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim looks behind."""
    monkeypatch.setattr(claims, "LOOK_BEHIND", 0.0)


def fresh(one: Claims) -> int:
    """What is proven of the line in which fresh jobs stand."""
    return (one.proven or {QUEUE: from_the_start([QUEUE])})[QUEUE][line_of(5, 1)]


async def settled(scene: Scene, one: Claims, worker: int) -> int:
    """Claim and complete a few jobs and look until all is settled; answers the last place."""
    ids = await scene.enqueue(3)
    demand = Demand(worker_id=worker, queues=(QUEUE,), kinds=(KIND,), limit=10, free=10)
    await scene.complete(*await one.plain(demand))
    async with asyncio.timeout(20):
        while fresh(one) != ids[-1]:
            assert await one.plain(demand) == []
    return ids[-1]


async def begun_at(scene: Scene, *kinds: str) -> int:
    """Where the first claim of a new worker that knows *kinds* begins, in the line of what is fresh."""
    new = NewWorker(name="w", host="h", pid=1, version="0", queues=(QUEUE,), kinds=kinds, slots=1, ttl=60.0)
    worker = await scene.run(workers.register_worker(new))
    one = Claims(scene.db.database, Bundles(scene.db.database))
    await one.plain(Demand(worker_id=worker, queues=(QUEUE,), kinds=kinds, limit=1, free=1))
    return fresh(one)


async def test_a_worker_begins_where_the_one_before_it_ended(scene: Scene) -> None:
    """Unless it knows another kind, of which jobs may have been left behind."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    last = await settled(scene, one, worker)
    assert await begun_at(scene, KIND) == FIRST_FRESH
    await scene.run(workers.end_worker(worker, one.proven))
    assert await begun_at(scene, KIND) == last
    assert await begun_at(scene, KIND, "other") == FIRST_FRESH


async def test_a_worker_that_is_killed_has_noted_its_places(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then they are noted while it works."""
    monkeypatch.setattr(claims, "NOTE_EVERY", 0.0)
    last = await settled(scene, Claims(scene.db.database, Bundles(scene.db.database)), await scene.worker())
    assert await begun_at(scene, KIND) == last


async def test_nothing_is_noted_that_was_noted_already(scene: Scene) -> None:
    """An end without anything new leaves what the worker noted before."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    last = await settled(scene, one, worker)
    assert one.proven is not None
    await scene.run(workers.note_settled(worker, one.proven))
    await scene.run(workers.end_worker(worker))
    assert await begun_at(scene, KIND) == last


async def test_a_process_that_stops_leaves_its_places_to_the_next(
    client: holdfast.Client,
    work: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole worker does so, and the next one claims what came meanwhile."""
    app, first, claim = holdfast.App(), [], attempts.claim_jobs

    @app.job
    async def greet() -> str:
        return "hello"

    def noted(demand: Demand) -> Any:
        assert demand.after is not None
        first.append(demand.after[line_of(5, 1)])
        return claim(demand)

    monkeypatch.setattr(attempts, "claim_jobs", noted)
    process = await work(app, poll=0.05)
    handle = await client.enqueue(greet.job())
    await client.wait(handle.id, timeout=20)

    async def proven() -> bool:
        places = process.worker.claimer.intake.proven
        return bool(places) and places[QUEUE][line_of(5, 1)] == handle.id

    await eventually(proven)
    await process.stop(5.0)
    later = await client.enqueue(greet.job())
    first.clear()
    await work(app, poll=0.05)
    assert await client.wait(later.id, timeout=20) == "hello"
    assert first[0] == handle.id


async def test_what_is_remembered_ends_with_the_server(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart or a failover it may know less than the worker does, so the worker asks again."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    last = await settled(scene, one, worker)
    await scene.run(workers.note_settled(worker, {QUEUE: from_the_start([QUEUE])}))
    look = attempts.find_leftovers

    def restarted(*asked: Any) -> Statement[Horizon]:
        found = look(*asked)
        return replace(found, reader=lambda rows: replace(found.reader(rows), server=1.0))

    monkeypatch.setattr(attempts, "find_leftovers", restarted)
    await scene.enqueue()
    demand = Demand(worker_id=worker, queues=(QUEUE,), kinds=(KIND,), limit=1, free=1)
    assert len(await one.plain(demand)) == 1
    await scene.db.fetch("update holdfast.live_jobs set state = 'available', worker_id = null")
    await scene.db.fetch("update holdfast.live_jobs set place = $1", last)
    async with asyncio.timeout(20):
        while not await one.plain(demand):
            pass


async def test_an_idle_worker_finds_what_a_standby_took_in_that_lags(scene: Scene) -> None:
    """Ids begin again below those that it has seen, and no statement of its own has failed."""
    database = Database(replace(scene.db.config, pool_size=1))
    await database.open()
    worker, one = await scene.worker(), Claims(database, Bundles(database))
    await settled(scene, one, worker)
    async with database.connection() as connection:
        await scene.execute(connection, "select setval('holdfast.jobs_id_seq', 1, false)")
        pid = await connection.fetchval("select pg_backend_pid()")
    await scene.db.fetch("truncate holdfast.jobs, holdfast.live_jobs, holdfast.finished_jobs")
    assert await scene.db.value("select pg_terminate_backend($1, 5000)", pid)
    job_ids = await scene.enqueue(1)
    demand = Demand(worker_id=worker, queues=(QUEUE,), kinds=(KIND,), limit=50, free=50)
    assert [job.id for job in await one.plain(demand)] == job_ids
    await database.close()


async def test_behind_a_pooler_the_server_is_asked_at_every_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees there whether a connection leads to the same one; elsewhere only doubt asks."""
    worker, look, asked = await scene.worker(), attempts.find_leftovers, asyncio.Event()

    def noted(*facts: Any) -> Statement[Horizon]:
        asked.set()
        return look(*facts)

    monkeypatch.setattr(attempts, "find_leftovers", noted)
    demand = Demand(worker_id=worker, queues=(QUEUE,), kinds=(KIND,), limit=1, free=1)
    direct = Claims(scene.db.database, Bundles(scene.db.database))
    await settled(scene, direct, worker)
    asked.clear()
    for _ in range(50):
        assert await direct.plain(demand) == []
    assert not asked.is_set()
    pooled = Database(replace(scene.db.config, pgbouncer=True))
    await pooled.open()
    try:
        behind = Claims(pooled, Bundles(pooled))
        await settled(scene, behind, worker)
        asked.clear()
        async with asyncio.timeout(20):
            while not asked.is_set():
                assert await behind.plain(demand) == []
    finally:
        await pooled.close()


async def test_what_is_remembered_ends_with_the_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers next may be a standby that has not heard of everything."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    await settled(scene, one, worker)
    demand = Demand(worker_id=worker, queues=(QUEUE,), kinds=(KIND,), limit=1, free=1)

    async def away(_: object) -> None:
        raise DatabaseUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(scene.db.database, "run", away)
        with pytest.raises(DatabaseUnavailable):
            await one.plain(demand)
    assert one.proven is None
    assert await one.plain(demand) == []
    assert one.proven is None


async def test_a_kind_that_a_lifespan_brings_is_claimed_by_who_names_it(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any
) -> None:
    """What a worker's row says it knows is what it claims, or others would believe it too much."""
    app = holdfast.App()

    @app.lifespan
    async def plugins() -> AsyncIterator[None]:
        app.job(kind="late")(late)
        yield

    async def late() -> str:
        return "better than never"

    job_id = await db.value("select holdfast.enqueue('late')")
    process = await work(app, poll=0.05)
    assert await client.wait(job_id, timeout=20) == "better than never"
    kinds = "select kinds from holdfast.workers where id = $1"
    assert await db.value(kinds, process.worker.worker_id) == ["late"]
