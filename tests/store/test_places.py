"""A job's place in its line: fresh ones by id, those that come back before them, and no smaller one later."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.model.outcome import Outcome, PutBack
from holdfast.rules.marks import from_the_start
from holdfast.store import attempts, jobs, leader, workers
from holdfast.store.attempts import Returned
from holdfast.store.sqlfile import rendered
from holdfast.testing import Probe, ThrowawayDatabase
from tests.store.scene import KIND, Scene, fence


async def test_a_fresh_job_stands_at_its_id(scene: Scene, client: holdfast.Client) -> None:
    """One by one, many by COPY, under a unique key: the place is the id."""
    app = holdfast.App()

    @app.job
    async def greet() -> None: ...

    await client.enqueue(greet.job())
    await client.enqueue(greet.job(), unique_key="u")
    await client.enqueue_many([greet.job()] * 600)
    assert await scene.db.value("select count(*) from holdfast.live_jobs where place = job_id") == 602


async def test_what_is_put_back_staged_or_rescued_stands_before_the_fresh(scene: Scene) -> None:
    """Each way back gives a new place, which only grows and is smaller than any fresh one."""
    back = PutBack(outcome=Outcome.RELEASED, delay=0.0, counts=False, reason="r")
    job = await scene.one()
    await scene.run(attempts.put_back_jobs([Returned(fence(job), back)]))
    places = [await scene.db.value("select place from holdfast.live_jobs")]
    worker = await scene.worker()
    (again,) = await scene.claim(worker)
    await scene.run(
        attempts.put_back_jobs(
            [Returned(fence(again), PutBack(outcome=Outcome.SNOOZED, delay=60.0, counts=False, reason="r"))]
        )
    )
    await scene.db.fetch("update holdfast.live_jobs set run_at = holdfast.now()")
    term = await scene.lead()
    await scene.run(leader.stage_jobs(term, 10))
    places.append(await scene.db.value("select place from holdfast.live_jobs"))
    await scene.claim(worker)
    await scene.db.fetch("update holdfast.workers set state = 'lost'")
    await scene.run(workers.rescue_jobs(term, 10))
    places.append(await scene.db.value("select place from holdfast.live_jobs"))
    assert places == sorted(set(places))
    assert max(places) < 0


async def test_a_job_whose_worker_died_before_it_seemed_to_begin_is_a_suspect(scene: Scene) -> None:
    """It may have begun a moment earlier: until an attempt of it ends otherwise."""
    (handle,) = [await scene.enqueue(1)]
    worker = await scene.worker()
    outcomes = (Outcome.RELEASED, Outcome.SNOOZED)
    seen = []
    for nth in range(4):
        (job,) = await scene.claim(worker, free=0)
        seen.append(job.suspect)
        if nth == 0:
            await scene.db.fetch("update holdfast.workers set state = 'lost' where id = $1", worker)
            await scene.run(workers.rescue_jobs(await scene.lead(), 10))
            worker = await scene.worker()
        elif nth < 3:
            back = PutBack(outcome=outcomes[nth - 1], delay=0.0, counts=False, reason="r")
            await scene.run(attempts.put_back_jobs([Returned(fence(job), back)]))
    assert seen == [False, True, True, False]
    assert handle == [job.id]


async def test_a_transaction_has_its_number_before_its_first_place(scene: Scene) -> None:
    """Ids reserved for a COPY belong to a transaction that others can see running."""
    session = await scene.session()
    async with session.transaction():
        await scene.run(jobs.reserve_ids(3), session)
        number = await session.fetchval("select pg_current_xact_id_if_assigned()::text")
        assert number is not None


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_job_that_commits_late_is_found_while_others_stream_past(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, probe: Probe, eventually: Any, ends: str
) -> None:
    """Its place is behind the tip of a busy worker, which finds it at its next look behind."""
    app, seen = holdfast.App(), set()

    @app.job
    async def greet(n: int) -> None:
        seen.add(n)

    async def stream() -> None:
        for n in range(1, 10**6):
            await client.enqueue_many([greet.job(n)] * 50)

    late = await db.database.connect()
    transaction = late.transaction()
    await transaction.start()
    enqueue = "select holdfast.enqueue('greet', '{\"n\": 0}')"
    job_id = await late.fetchval(rendered(enqueue, db.schema))
    await work(app)
    streaming = asyncio.create_task(stream())
    try:
        await probe.wait_for("attempts.reported", times=20)
        passed = "select max(job_id) from holdfast.finished_jobs"
        assert await db.value(passed) > job_id
        assert 0 not in seen
        await (transaction.commit() if ends == "commit" else transaction.rollback())
        if ends == "commit":
            await eventually(
                lambda: db.value("select count(*) from holdfast.finished_jobs where job_id = $1", job_id)
            )
    finally:
        streaming.cancel()
        await asyncio.gather(streaming, return_exceptions=True)
        await late.close()
    assert (0 in seen) is (ends == "commit")


async def test_a_look_tells_a_number_above_all_that_have_begun(scene: Scene) -> None:
    """Also where the youngest transaction is the one under way, which no snapshot lists."""
    session = await scene.session()
    async with session.transaction():
        number = await session.fetchval("select pg_current_xact_id()::text::bigint")
        lines = from_the_start(("default",))
        found = await scene.run(attempts.find_leftovers(("default",), (KIND,), lines, lines))
        assert found.next_number > number
        later = await scene.run(attempts.find_leftovers(("default",), (KIND,), lines, lines))
        assert number in later.running
