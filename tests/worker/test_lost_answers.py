"""The answer of a claim may be lost on its way: what it took is found again and given back."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store import attempts
from holdfast.testing import Probe
from holdfast.worker import strays
from tests.store.scene import Scene

WAITING_CLAIM = """
    select pid from pg_stat_activity
    where wait_event_type = 'Lock' and query like 'with holder%' and query like '%' || $1 || '%'"""
ASLEEP = "select count(*) from holdfast.workers where wakes_below = 10"

# A claim waits for a lock just before it writes.
SLOW_CLAIMS = (
    """create function holdfast.wait_a_little() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(1); return new; end $$""",
    """create trigger slow before update of worker_id on holdfast.live_jobs
    for each row when (new.worker_id is not null) execute function holdfast.wait_a_little()""",
)


@pytest.mark.parametrize("noticed", ["at once", "too early"])
async def test_jobs_of_a_claim_whose_answer_was_lost_run_all_the_same(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    probe: Probe,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    noticed: str,
) -> None:
    """The connection breaks under a claim, and the claim is written before or after the worker looked."""
    monkeypatch.setattr(strays, "EVERY", 0.5)
    app = holdfast.App()

    @app.job
    async def greet() -> str:
        return "hello"

    await work(app)
    worker = (await probe.wait_for("worker.registered"))["worker_id"]
    await eventually(lambda: scene.db.value(ASLEEP))
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    await scene.execute(session, "select id from holdfast.workers for update")
    handle = await client.enqueue(greet.job())
    pid = await eventually(lambda: scene.db.value(WAITING_CLAIM, scene.db.schema))
    # This is what the claim would have written; its answer never reaches the worker.
    assert [job.id for job in await scene.claim(worker, connection=session)] == [handle.id]
    assert await session.fetchval("select pg_terminate_backend($1, 5000)", pid)
    if noticed == "too early":
        await eventually(lambda: _next_claim_waits(scene, pid))
    await transaction.commit()
    assert await client.wait(handle.id, timeout=20) == "hello"
    assert await scene.db.fetch("select attempt, outcome, reason from holdfast.attempts") == [
        (1, "released", "the answer of the claim was lost")
    ]
    assert await scene.db.fetch("select attempt, failures from holdfast.finished_jobs") == [(2, 0)]


async def test_a_stop_gives_back_what_a_claim_takes_that_it_cut_off(
    client: holdfast.Client, work: Any, scene: Scene, eventually: Any
) -> None:
    """The server goes on with it, and its job would be one that a dead worker ran."""
    app = holdfast.App()

    @app.job
    async def greet() -> None: ...

    process = await work(app)
    await eventually(lambda: scene.db.value(ASLEEP))
    for statement in SLOW_CLAIMS:
        await scene.db.fetch(statement)
    session = await scene.session()
    await session.execute("select pg_advisory_lock(1)")
    await client.enqueue(greet.job())
    await eventually(lambda: scene.db.value(WAITING_CLAIM, scene.db.schema))
    stopping = asyncio.create_task(process.stop(0.0))
    # Time enough for a stop that does not wait.
    await asyncio.wait({stopping}, timeout=0.5)
    await session.execute("select pg_advisory_unlock(1)")
    await stopping
    await eventually(lambda: _no_claim_waits(scene))
    assert await scene.db.fetch("select state, failures from holdfast.live_jobs") == [("available", 0)]
    assert await scene.db.fetch("select outcome, reason from holdfast.attempts") == [
        ("released", "the answer of the claim was lost")
    ]


async def test_only_who_lost_an_answer_compares_often(
    client: holdfast.Client, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison walks over all that a worker ever did where dead rows cannot be removed."""
    monkeypatch.setattr(strays, "EVERY", 0.0)
    app, compared, look = holdfast.App(), list[int](), attempts.held_attempts

    def counted(worker_id: int) -> Any:
        compared.append(worker_id)
        return look(worker_id)

    monkeypatch.setattr(attempts, "held_attempts", counted)

    @app.job
    async def greet() -> str:
        return "hello"

    async def greeted() -> None:
        for _ in range(3):
            assert await client.wait((await client.enqueue(greet.job())).id, timeout=20) == "hello"

    claims = (await work(app)).worker.claimer.intake._claims
    await greeted()
    assert compared == []
    run = claims.run

    async def broken(*_: Any) -> Any:
        claims.run = run
        raise DatabaseUnavailable("the connection broke")

    claims.run = broken
    await greeted()
    assert len(compared) >= 3


async def _no_claim_waits(scene: Scene) -> bool:
    return await scene.db.value(WAITING_CLAIM, scene.db.schema) is None


async def _next_claim_waits(scene: Scene, former: int) -> bool:
    pid = await scene.db.value(WAITING_CLAIM, scene.db.schema)
    return pid is not None and pid != former
