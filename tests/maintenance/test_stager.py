"""Due jobs become available: at their time, in order, however many there are."""

import json
import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast.maintenance.stager import BATCH, LONGEST_REST, Stager
from holdfast.store import leader
from holdfast.store.sqlfile import rendered
from holdfast.testing import Clock, Probe
from tests.store.scene import Scene


async def schedule_in(scene: Scene, *seconds: float) -> list[int]:
    """Enqueue a job for each delay; answers their ids."""
    return [(await scene.enqueue(delay=delay))[0] for delay in seconds]


async def test_only_what_is_due_becomes_available(scene: Scene, clock: Clock, duty: Any) -> None:
    """A job is due from the very moment it was scheduled for, and not before."""
    await clock.set(await clock.now())
    early, exact, late = await schedule_in(scene, 9.0, 10.0, 10.001)
    await clock.advance(10)
    await duty(Stager).lead(await scene.lead())
    assert await scene.states() == {early: "available", exact: "available", late: "scheduled"}


async def test_the_stager_rests_exactly_until_the_next_job_is_due(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """It neither polls for what it knows nor sleeps past it; without any due time it looks every 5 s."""
    await clock.set(await clock.now())
    term = await scene.lead()
    assert await duty(Stager).lead(term) == LONGEST_REST
    await schedule_in(scene, 100.0)
    assert await duty(Stager).lead(term) == LONGEST_REST
    await schedule_in(scene, 2.5)
    assert await duty(Stager).lead(term) == pytest.approx(2.5)
    await clock.advance(2)
    assert await duty(Stager).lead(term) == pytest.approx(0.5)


async def test_a_job_enqueued_while_the_stager_sleeps_is_announced(
    scene: Scene, maintain: Any, probe: Probe
) -> None:
    """A due time before the stager's next look wakes it, so the job is not late."""
    await maintain()
    await probe.wait_for("listen.connected")
    await probe.wait_for("leader.changed")
    # The first look after the change is over once a new leader counts: then it sleeps for 5 s.
    await probe.wait_for("queues.counted")
    begun = time.monotonic()
    await schedule_in(scene, 0.2)
    await probe.wait_for("jobs.staged")
    assert 0.2 <= time.monotonic() - begun < LONGEST_REST - 1


async def test_ten_thousand_jobs_due_at_once_are_staged_in_batches(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """No statement takes more than a batch, and none is left behind."""
    await clock.set(await clock.now())
    await scene.enqueue(10_000, delay=1.0)
    await clock.advance(1)
    term, stager = await scene.lead(), duty(Stager)
    rests = [await stager.lead(term) for _ in range(11)]
    assert rests == [0.0] * 10 + [LONGEST_REST]
    assert [told["count"] for told in probe.seen("jobs.staged")] == [BATCH] * 10
    assert await scene.db.value("select count(*) from holdfast.live_jobs where state = 'available'") == 10_000


async def test_what_has_been_due_for_longest_is_staged_first(scene: Scene, clock: Clock) -> None:
    """When there is more than a batch, the oldest due times come first, then the oldest jobs."""
    await clock.set(await clock.now())
    third, first, second, fourth = await schedule_in(scene, 20.0, 5.0, 5.0, 30.0)
    await clock.advance(timedelta(minutes=1))
    term = await scene.lead()
    await scene.run(leader.stage_jobs(term, 2))
    states = await scene.states()
    assert [states[job] for job in (first, second, third, fourth)] == ["available"] * 2 + ["scheduled"] * 2
    await scene.run(leader.stage_jobs(term, 1))
    assert (await scene.states())[third] == "available"


async def test_what_was_locked_as_it_fell_due_is_looked_for_again(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Whoever locks it lets go at the end of a transaction, and nobody would tell the leader then."""
    await clock.set(await clock.now())
    locked, free = await schedule_in(scene, 1.0, 1.0)
    await clock.advance(1)
    session, stager, term = await scene.session(), duty(Stager), await scene.lead()
    async with session.transaction():
        await scene.execute(
            session, "select job_id from holdfast.live_jobs where job_id = $1 for update", locked
        )
        assert await stager.lead(term) == 0.1
        assert await scene.states() == {locked: "scheduled", free: "available"}
    assert await stager.lead(term) == LONGEST_REST
    assert await scene.states() == {locked: "available", free: "available"}


async def test_staged_jobs_wake_a_sleeping_worker(scene: Scene, clock: Clock, duty: Any) -> None:
    """The worker that waits for the queue is told, once, and only where it sleeps."""
    heard: list[object] = []
    await clock.set(await clock.now())
    await scene.enqueue(3, delay=60.0)
    await clock.advance(60)
    worker = await scene.worker()
    await scene.db.fetch("update holdfast.workers set wakes_below = 10 where id = $1", worker)
    session = await scene.session()
    await session.add_listener(scene.db.schema, lambda *args: heard.append(args[3]))
    await duty(Stager).lead(await scene.lead())
    await session.execute("select 1")
    assert heard == ["jobs:5:default"]


async def test_millions_of_future_jobs_do_not_matter(scene: Scene) -> None:
    """Staging and the look ahead walk the index of scheduled jobs, and touch only what is due."""
    await scene.db.fetch(
        "insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at) "
        "select n, 'default', 'greet', 5, 'scheduled', holdfast.now() + make_interval(secs => n - 10) "
        "from generate_series(1, 100000) n"
    )
    statement = leader.stage_jobs(await scene.lead(), 1000)
    text = "explain (analyze, format json) " + rendered(statement.text, scene.db.schema)
    async with scene.db.database.connection() as connection:
        (plan,) = json.loads(await connection.fetchval(text, *statement.parameters))
    scans = [node for node in nodes(plan["Plan"]) if node.get("Relation Name") == "live_jobs"]
    scheduled = [node for node in scans if node.get("Index Name") == "live_jobs_scheduled"]
    assert len(scheduled) == 3
    assert all("Seq Scan" not in node["Node Type"] for node in scans)
    assert sum(node["Actual Rows"] for node in scheduled) < 20


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """A node of a plan and all below it."""
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]
