"""Queues know how many jobs they have, and a kind that nobody knows does not wait for ever."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.maintenance.counter import BATCH, REST_FOR_EACH_SECOND, Counter
from holdfast.model import delivery
from holdfast.store import counts, workers
from holdfast.store.counts import UnknownJobs
from holdfast.store.workers import NewWorker
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.store.scene import KIND, Scene

QUEUES = """
    select name, available, scheduled, running, waiting, oldest_available_at is not null
    from holdfast.queues order by name"""
HOUR = 3600.0
MYSTERY = UnknownJobs("default", "mystery")


async def test_every_queue_is_counted_by_state(scene: Scene, duty: Any) -> None:
    """Claimed and running jobs count as running; a queue that nobody knew before gets a row."""
    worker = await scene.worker("mail", "idle")
    await scene.enqueue(3, queue="mail")
    await scene.claim(worker, "mail", limit=2, free=1)
    await scene.enqueue(2, queue="mail", delay=60.0)
    await scene.enqueue(queue="new")
    await duty(Counter).lead(await scene.lead())
    assert await scene.db.fetch(QUEUES) == [
        ("idle", 0, 0, 0, 0, False),
        ("mail", 1, 2, 2, 0, True),
        ("new", 1, 0, 0, 0, True),
    ]


async def test_a_queue_that_has_emptied_counts_nothing(scene: Scene, clock: Clock, duty: Any) -> None:
    """Counts of the past go away, and the row says when it was counted."""
    await clock.set(await clock.now())
    worker = await scene.worker()
    await scene.enqueue(2)
    counter, term = duty(Counter), await scene.lead()
    await counter.lead(term)
    await scene.complete(*await scene.claim(worker))
    now = await clock.advance(10)
    await counter.lead(term)
    assert await scene.db.fetch(QUEUES) == [("default", 0, 0, 0, 0, False)]
    assert await scene.db.value("select counted_at from holdfast.queues") == now


async def test_the_oldest_available_job_is_the_one_that_waits_for_longest(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Its age counts from when it could first have run, not from when it was enqueued."""
    now = await clock.now()
    await clock.set(now)
    await scene.enqueue(run_at=now - timedelta(minutes=5))
    await scene.enqueue()
    await duty(Counter).lead(await scene.lead())
    oldest = await scene.db.value("select oldest_available_at from holdfast.queues")
    assert oldest == now - timedelta(minutes=5)


async def test_the_counter_leaves_switches_and_limits_alone(scene: Scene, duty: Any) -> None:
    """Counting touches the counts only."""
    await scene.worker()
    await scene.db.fetch("update holdfast.queues set paused = true, max_running = 7, keyed = true")
    await duty(Counter).lead(await scene.lead())
    switches = await scene.db.fetch("select paused, max_running, keyed from holdfast.queues")
    assert switches == [(True, 7, True)]


async def test_the_counter_rests_much_longer_than_it_scans(scene: Scene, duty: Any, probe: Probe) -> None:
    """A scan that takes long, however it comes, is followed by fifty times its duration of rest."""
    await scene.worker()
    term, counter = await scene.lead(), duty(Counter, count_rest=0.05)
    session = await scene.session()
    holding = session.transaction()
    await holding.start()
    await scene.execute(session, "select name from holdfast.queues for update")
    counting = asyncio.create_task(counter.lead(term))
    # The scan lasts for at least as long as this statement.
    await session.execute("select pg_sleep(0.3)")
    await holding.rollback()
    rest = await counting
    (told,) = probe.seen("queues.counted")
    assert rest == REST_FOR_EACH_SECOND * told["seconds"]
    assert await duty(Counter).lead(term) >= 5.0


# Kinds that nobody knows


async def waiting_for_hours(scene: Scene, clock: Clock, count: int = 1, **options: Any) -> tuple[int, int]:
    """A worker has attended a queue for two hours in which an unknown kind waited; answers both ids."""
    await clock.set(await clock.now())
    worker = await scene.worker()
    job_ids = await scene.enqueue(count, kind="mystery", **options)
    await clock.advance(2 * HOUR)
    await scene.run(workers.renew_worker(worker))
    return worker, job_ids[0]


async def specialist(scene: Scene, ttl: float = 60.0) -> int:
    """A worker that knows the kind."""
    new = NewWorker(
        name="w", host="h", pid=1, version="0", queues=("default",), kinds=("mystery",), slots=1, ttl=ttl
    )
    return await scene.run(workers.register_worker(new))


async def test_a_job_that_nobody_knows_fails_after_the_grace(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Its reason says what to do, and a known job that waited as long stays."""
    _, job_id = await waiting_for_hours(scene, clock)
    (known,) = await scene.enqueue(run_at=await clock.now() - timedelta(hours=2))
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {job_id: "failed", known: "available"}
    assert await scene.db.value("select reason from holdfast.finished_jobs") == (
        "unknown kind: no worker of queue default has had a handler for mystery for 01:00:00; "
        "deploy one, then retry the job"
    )
    (told,) = probe.seen("jobs.unknown")
    assert (told["queue"], told["kind"], told["job_ids"]) == ("default", "mystery", [job_id])


async def test_a_job_that_was_due_before_it_came_waits_for_the_grace(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Its time may be that of an event of yesterday, and its handler be deployed in a minute."""
    _, old = await waiting_for_hours(scene, clock)
    (late,) = await scene.enqueue(kind="mystery", run_at=await clock.now() - timedelta(hours=2))
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {old: "failed", late: "available"}


async def test_a_run_waits_for_its_version_however_long(scene: Scene, clock: Clock, duty: Any) -> None:
    """Runs may be older than the workers of today: what they remember is not given up for that."""
    _, run_id = await waiting_for_hours(scene, clock)
    await scene.db.fetch("insert into holdfast.workflows (kind) values ('mystery')")
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {run_id: "available"}


async def test_a_delivery_waits_for_a_service_however_long(scene: Scene, clock: Clock, duty: Any) -> None:
    """A worker of its queue that has an application's handlers only says nothing about it."""
    _, carrier_id = await waiting_for_hours(scene, clock)
    await scene.db.fetch("update holdfast.live_jobs set kind = $1", delivery.KIND)
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {carrier_id: "available"}


async def test_a_job_within_the_grace_waits(scene: Scene, clock: Clock, duty: Any) -> None:
    """Exactly the grace is not more than the grace; and what came later keeps its own time."""
    _, old = await waiting_for_hours(scene, clock)
    (young,) = await scene.enqueue(kind="mystery")
    term = await scene.lead()
    await duty(Counter, unknown_grace=2 * HOUR).lead(term)
    assert await scene.states() == {old: "available", young: "available"}
    await duty(Counter, unknown_grace=2 * HOUR - 1).lead(term)
    assert await scene.states() == {old: "failed", young: "available"}


async def test_many_unknown_jobs_fail_in_batches(scene: Scene, clock: Clock, duty: Any, probe: Probe) -> None:
    """No statement takes more than a batch, and none is left over."""
    await waiting_for_hours(scene, clock, 2500)
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert [told["count"] for told in probe.seen("jobs.unknown")] == [BATCH, BATCH, 500]
    assert await scene.db.value("select count(*) from holdfast.live_jobs") == 0


async def test_a_worker_that_registers_meanwhile_saves_the_job(scene: Scene, clock: Clock) -> None:
    """The judgement is made anew in the statement that would fail the jobs."""
    _, job_id = await waiting_for_hours(scene, clock)
    term = await scene.lead()
    assert await scene.run(counts.count_jobs(term, HOUR)) == [MYSTERY]
    await specialist(scene)
    assert await scene.run(counts.fail_unknown(term, MYSTERY, grace=HOUR, limit=10)) == []
    assert await scene.states() == {job_id: "available"}


@pytest.mark.parametrize(("minutes_ago", "state"), [(59, "available"), (61, "failed")])
async def test_a_kind_that_was_known_until_lately_is_known(
    scene: Scene, clock: Clock, duty: Any, minutes_ago: int, state: str
) -> None:
    """A deployment that is being replaced does not cost the backlog of its kind."""
    _, job_id = await waiting_for_hours(scene, clock)
    gone = await specialist(scene)
    await scene.run(workers.end_worker(gone))
    ended = await clock.now() - timedelta(minutes=minutes_ago)
    await scene.db.fetch("update holdfast.workers set ended_at = $2 where id = $1", gone, ended)
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {job_id: state}


@pytest.mark.parametrize(
    "change",
    [
        "delete from holdfast.workers",
        "update holdfast.workers set state = 'draining'",
        "update holdfast.workers set queues = '{other}'",
        "update holdfast.workers set expires_at = holdfast.now()",
        "update holdfast.workers set started_at = holdfast.now() - interval '59 minutes'",
        "update holdfast.queues set paused = true",
    ],
    ids=["no worker", "draining", "another queue", "dead", "only just come", "paused"],
)
async def test_a_queue_without_attendance_says_nothing_about_its_kinds(
    scene: Scene, clock: Clock, duty: Any, change: str
) -> None:
    """A fleet that was away or stopped on purpose must not come back to a failed backlog."""
    _, job_id = await waiting_for_hours(scene, clock)
    await scene.db.fetch(change)
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {job_id: "available"}


@pytest.mark.parametrize("options", [{"delay": 24 * HOUR}, {"concurrency_key": "k"}], ids=str)
async def test_only_available_jobs_are_judged_with_or_without_a_key(
    scene: Scene, clock: Clock, duty: Any, options: dict[str, Any]
) -> None:
    """What is due tomorrow may have a worker tomorrow; a concurrency key makes no difference."""
    _, job_id = await waiting_for_hours(scene, clock, **options)
    await duty(Counter, unknown_grace=HOUR).lead(await scene.lead())
    assert await scene.states() == {job_id: "failed" if "concurrency_key" in options else "scheduled"}


async def test_an_unknown_job_is_left_for_a_worker_that_knows_it(
    client: holdfast.Client, work: Any, maintain: Any, db: ThrowawayDatabase
) -> None:
    """A worker passes it over and goes on with its own; whoever knows the kind takes it when it comes."""
    mine, other = holdfast.App(), holdfast.App()

    @mine.job
    async def ordinary() -> str:
        return KIND

    @other.job
    async def mystery() -> str:
        return "solved"

    await maintain()
    first = await work(mine)
    unknown = await client.enqueue(mystery.job())
    known = await client.enqueue(ordinary.job())
    assert await client.wait(known.id, timeout=10) == KIND
    assert await db.value("select state from holdfast.live_jobs") == "available"
    second = await work(other)
    assert await client.wait(unknown.id, timeout=10) == "solved"
    ran = "select worker_id from holdfast.finished_jobs where job_id = $1"
    assert await db.value(ran, unknown.id) == second.worker.worker_id != first.worker.worker_id


async def test_an_unknown_job_fails_while_its_queue_goes_on(
    client: holdfast.Client, work: Any, maintain: Any
) -> None:
    """With a grace of half a second the whole way from enqueue to failure can be seen."""
    app = holdfast.App()

    @app.job
    async def ordinary() -> str:
        return KIND

    await maintain(unknown_grace=0.5, count_rest=0.1)
    await work(app)
    handle = await client.enqueue(holdfast.JobRequest("mystery", "{}"))
    with pytest.raises(holdfast.JobFailed, match="unknown kind"):
        await client.wait(handle.id, timeout=20)
    assert await client.wait((await client.enqueue(ordinary.job())).id, timeout=10) == KIND


async def test_who_begins_a_term_rests_before_it_counts(scene: Scene, duty: Any) -> None:
    """Who has just started has jobs to see to; of leaders that follow one another not each has to scan."""
    await scene.worker()
    counted = "select counted_at from holdfast.queues"
    first, second = duty(Counter), duty(Counter)
    for one in (first, second):
        one.leadership.term = await scene.lead()
        before = await scene.db.value(counted)
        assert await one.turn() == one.config.count_rest
        assert await scene.db.value(counted) == before
        await one.turn()
        assert await scene.db.value(counted) != before
