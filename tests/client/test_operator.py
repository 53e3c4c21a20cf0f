"""What operators do to queues, workers and schedules, and why a job waits."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.client.wire.schedules import ScheduleSummary, summary
from holdfast.errors import OptionInvalid, QueueNotFound, ScheduleNotFound, WorkerEnded, WorkerNotFound
from holdfast.model.schedule import Schedule
from holdfast.testing import Probe, ThrowawayDatabase


@pytest.fixture
def gate() -> asyncio.Event:
    """Lets the handlers of kind held end."""
    return asyncio.Event()


@pytest.fixture
def app(gate: asyncio.Event) -> holdfast.App:
    """Knows a kind that runs until the gate is opened."""
    app = holdfast.App()

    @app.job
    async def held() -> str:
        await gate.wait()
        return "done"

    return app


HELD = JobRequest("held", "{}")


async def running(db: ThrowawayDatabase) -> Any:
    """How many jobs run."""
    return await db.value("select count(*) from holdfast.live_jobs where state = 'running'")


async def test_a_paused_queue_is_not_claimed_from_and_what_runs_goes_on(
    operator: Operator,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    probe: Probe,
    gate: asyncio.Event,
) -> None:
    """A running job ends as usual; the next one waits for the resume, says why, and then starts at once."""
    await work(app, poll=3600.0)
    first = await client.enqueue(HELD)
    await probe.wait_for("attempt.started")
    assert (await operator.queues.pause("default", "deploy")).paused
    gate.set()
    assert await client.wait(first.id, timeout=10) == "done"
    second = await client.enqueue(HELD)
    assert "queue 'default' is paused" in (await operator.jobs.why(second.id) or "")
    assert not (await operator.queues.resume("default")).paused
    assert await client.wait(second.id, timeout=10) == "done"
    acts = await operator.audit(subject="queue default")
    assert [(act.action, act.reason) for act in acts] == [("queue.resume", None), ("queue.pause", "deploy")]
    assert acts[1].detail["before"]["paused"] is False
    assert acts[1].detail["after"]["paused"] is True


async def test_a_limit_lowered_while_jobs_run_holds_for_the_next_ones(
    operator: Operator,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    gate: asyncio.Event,
    db: ThrowawayDatabase,
    eventually: Any,
) -> None:
    """What runs goes on above the limit; nothing new begins until there is room, and the job says so."""
    await work(app, slots=3, poll=3600.0)
    await client.enqueue_many([HELD] * 3)
    await eventually(lambda: running_is(db, 3))
    assert (await operator.queues.limit("default", 1)).max_running == 1
    late = await client.enqueue(HELD)
    assert "at its limit, 3 of at most 1 running" in (await operator.jobs.why(late.id) or "")
    assert await running(db) == 3
    gate.set()
    assert await client.wait(late.id, timeout=10) == "done"
    assert (await operator.queues.limit("default", None)).max_running is None


async def running_is(db: ThrowawayDatabase, number: int) -> bool:
    """Whether that many jobs run."""
    return bool(await running(db) == number)


async def test_a_queue_that_nobody_knows_is_refused_unless_it_is_meant(
    operator: Operator, client: holdfast.Client
) -> None:
    """A misspelt name makes no queue; tomorrow's can be limited today; a job makes its queue known."""
    with pytest.raises(QueueNotFound, match="queue 'mial' is unknown"):
        await operator.queues.pause("mial")
    assert (await operator.queues.limit("tomorrow", 2, create=True)).max_running == 2
    await client.enqueue(HELD, queue="today")
    assert (await operator.queues.key_limit("today", 3)).key_limit == 3
    assert [queue.name for queue in await operator.queues.find()] == ["today", "tomorrow"]
    with pytest.raises(OptionInvalid, match="limit is -1"):
        await operator.queues.limit("today", -1)
    with pytest.raises(OptionInvalid, match="key limit is 0"):
        await operator.queues.key_limit("today", 0)


async def test_a_limit_of_keys_lets_more_of_them_run(
    operator: Operator,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
) -> None:
    """Raising it wakes the workers, which then take as many more."""
    await work(app, slots=5, poll=3600.0)
    handles = [await client.enqueue(HELD, concurrency_key="a") for _ in range(3)]
    await eventually(lambda: running_is(db, 1))
    assert "1 of at most 1 jobs with concurrency key 'a'" in (await operator.jobs.why(handles[2].id) or "")
    await operator.queues.key_limit("default", 2)
    await eventually(lambda: running_is(db, 2))


async def test_a_drained_worker_finishes_and_takes_nothing_more(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """The list shows it draining with what it runs; the act is audited with its former state."""
    process = await work(app, name="w1")
    await client.enqueue(HELD)
    await probe.wait_for("attempt.started")
    (worker,) = await operator.workers.find()
    assert (worker.name, worker.state, worker.running, worker.slots) == ("w1", "online", 1, 10)
    assert worker.renewed_at < worker.expires_at
    await operator.workers.drain(worker.id, "maintenance")
    await probe.wait_for("worker.draining")
    assert (await operator.workers.find())[0].state == "draining"
    (act,) = await operator.audit(subject=f"worker {worker.id}")
    assert (act.actor, act.action, act.reason) == ("alice", "worker.drain", "maintenance")
    assert act.detail["before"] == {"state": "online", "draining": False}
    await process.stop(0.0)
    assert await operator.workers.find() == []
    assert [one.state for one in await operator.workers.find(ended=True)] == ["offline"]
    with pytest.raises(WorkerEnded, match="is offline: it takes no jobs"):
        await operator.workers.drain(worker.id)
    with pytest.raises(WorkerNotFound, match="worker 4711 is unknown"):
        await operator.workers.drain(4711)


async def test_a_queue_keeps_its_history_for_as_long_as_an_operator_says(operator: Operator) -> None:
    """The retention is set, kept by other changes, told with its former value, and lifted again."""
    a_day = timedelta(days=1)
    assert (await operator.queues.retention("pulse", a_day, "chatty", create=True)).retention == a_day
    assert (await operator.queues.pause("pulse")).retention == a_day
    assert (await operator.queues.retention("pulse", 7200)).retention == timedelta(hours=2)
    (latest, *_) = await operator.audit(subject="queue pulse")
    assert latest.action == "queue.retention"
    assert (latest.detail["before"]["retention"], latest.detail["after"]["retention"]) == (
        "24:00:00",
        "02:00:00",
    )
    assert (await operator.queues.retention("pulse", None)).retention is None
    with pytest.raises(OptionInvalid, match="retention is 59: it must lie between 60 seconds and ten years"):
        await operator.queues.retention("pulse", 59)


def test_a_schedule_that_was_written_by_hand_travels_over_http() -> None:
    """Whatever stands where its options are expected: one such row must not hide all others."""
    told = msgspec.json.encode(summary(Schedule(name="odd", kind="greet", options="[5]")))
    assert msgspec.json.decode(told, type=ScheduleSummary).options == [5]


async def test_a_deleted_schedule_fires_no_more(operator: Operator, db: ThrowawayDatabase) -> None:
    """Its row is gone, and the audit log keeps what it was, but for its arguments, which may be secret."""
    await db.fetch(
        "insert into holdfast.schedules (name, kind, queue, every, args) "
        """values ('nightly', 'greet', 'default', 60, '{"token": "s3cret"}')"""
    )
    await operator.schedules.delete("nightly", "not declared any more")
    assert await operator.schedules.find() == []
    (act,) = await operator.audit(subject="schedule nightly")
    assert (act.action, act.reason) == ("schedule.delete", "not declared any more")
    assert (act.detail["before"]["kind"], act.detail["before"]["every"]) == ("greet", 60)
    assert "s3cret" not in str(act.detail)


async def test_schedules_are_run_and_paused_by_hand(operator: Operator, db: ThrowawayDatabase) -> None:
    """A run makes a job beside the ticks; both acts are audited."""
    await db.fetch(
        "insert into holdfast.schedules (name, kind, queue, every, next_tick_at) "
        "values ('nightly', 'held', 'default', 3600, holdfast.now() + interval '1 hour')"
    )
    job_id = await operator.schedules.run("nightly", "now please")
    assert (await operator.jobs.show(job_id)).kind == "held"
    await operator.schedules.pause("nightly")
    assert [schedule.paused for schedule in await operator.schedules.find()] == [True]
    await operator.schedules.resume("nightly")
    actions = [act.action for act in await operator.audit(subject="schedule nightly", actor="alice")]
    assert actions == ["schedule.resume", "schedule.pause", "schedule.run"]
    assert await operator.audit(actor="bob") == []
    unknown = operator.schedules
    for verb in (unknown.run, unknown.pause, unknown.resume, unknown.delete):
        with pytest.raises(ScheduleNotFound, match="schedule 'weekly' is unknown"):
            await verb("weekly")
    assert len(await operator.audit()) == 3


async def test_a_job_says_which_worker_is_missing(
    operator: Operator,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
) -> None:
    """First nobody works on its queue, then nobody knows its kind, then all slots are busy.

    Where workers of another queue know the kind, that queue is named.
    """
    stranger = await client.enqueue(JobRequest("stranger", "{}"))
    assert "no online worker works on queue 'default'" in (await operator.jobs.why(stranger.id) or "")
    await work(app, slots=1)
    handles = [await client.enqueue(HELD) for _ in range(3)]
    await eventually(lambda: running_is(db, 1))
    why = await operator.jobs.why(stranger.id)
    assert why == "of 1 worker online in queue 'default' none knows kind 'stranger': deploy its handler"
    astray = await client.enqueue(HELD, queue="astray")
    why = await operator.jobs.why(astray.id)
    assert why == (
        "no online worker works on queue 'astray': start one with --queues astray, "
        f"or enqueue it in a queue whose workers know {HELD.kind!r}: 'default'"
    )
    states = {handle.id: (await operator.jobs.show(handle.id)).state for handle in handles}
    waiting = [job_id for job_id, state in states.items() if state == "available"]
    assert "all slots (1) of 1 worker are busy" in (await operator.jobs.why(waiting[-1]) or "")


async def test_an_overdue_job_says_that_nobody_leads(
    operator: Operator, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Without a leader nothing makes it available."""
    handle = await client.enqueue(HELD, delay=timedelta(days=1))
    await db.fetch("update holdfast.live_jobs set run_at = holdfast.now() - interval '1 minute'")
    assert "nobody leads" in (await operator.jobs.why(handle.id) or "")
