"""How attempts and jobs end: outcomes, times, history, and what people see of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.audit import Mandate
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop
from holdfast.store import attempts, jobs, leader, workers
from holdfast.store.attempts import Ended, Fence, Final, Returned
from holdfast.store.interventions import cancel_jobs
from tests.store.scene import Scene, fence

HOW = "select outcome, reason, result::text, error, failures, attempt, worker_id from holdfast.finished_jobs"


async def test_a_batch_ends_each_job_in_its_own_way(scene: Scene) -> None:
    """Completed, failed and cancelled in one statement, each with its result, error and reason."""
    worker = await scene.worker()
    await scene.enqueue(3)
    done, broken, unwanted = await scene.claim(worker)
    batch = [
        Ended(fence(unwanted), Stop("no longer wanted")),
        Ended(fence(done), Complete('{"sum": 5}')),
        Ended(fence(broken), Fail("a long trace", "it broke")),
    ]
    accepted = await scene.run(attempts.finish_jobs(batch))
    assert sorted(accepted) == [done.id, broken.id, unwanted.id]
    assert await scene.db.fetch(f"{HOW} order by job_id") == [
        ("completed", None, '{"sum": 5}', None, 0, 1, worker),
        ("failed", "it broke", None, "a long trace", 1, 1, worker),
        ("cancelled", "no longer wanted", None, None, 0, 1, worker),
    ]
    assert await scene.db.value("select count(*) from holdfast.live_jobs") == 0


@pytest.mark.parametrize("write", [attempts.finish_jobs, attempts.complete_jobs])
async def test_the_times_of_an_ended_attempt_are_in_order(scene: Scene, write: Any) -> None:
    """Claimed, then started, then finished; a handler cannot have begun before its claim."""
    worker = await scene.worker()
    await scene.enqueue(2)
    short, long = await scene.claim(worker, free=0)
    batch = [Ended(fence(short), Complete(None), 0.0), Ended(fence(long), Complete(None), 3600.0)]
    await scene.run(write(batch))
    times = "select claimed_at, started_at, finished_at from holdfast.finished_jobs order by job_id"
    for claimed_at, started_at, finished_at in await scene.db.fetch(times):
        assert claimed_at <= started_at <= finished_at
    rows = await scene.db.fetch(times)
    assert rows[0][1] == rows[0][2]
    assert rows[1][1] == rows[1][0]


async def test_a_plain_end_is_recorded_as_any_other(scene: Scene) -> None:
    """But for its times the row is the same, whichever statement wrote it."""
    worker = await scene.worker()
    await scene.enqueue(2)
    plain, other = await scene.claim(worker)
    await scene.db.fetch("update holdfast.live_jobs set parent_id = 7")
    assert await scene.run(attempts.complete_jobs([Ended(fence(plain), Complete())])) == [plain.id]
    await scene.complete(other)
    row = "to_jsonb(f) - array['job_id', 'claimed_at', 'started_at', 'finished_at']"
    rows = await scene.db.fetch(f"select distinct {row}, f.parent_id from holdfast.finished_jobs f")  # noqa: S608
    assert [parent_id for _, parent_id in rows] == [7]


async def test_the_plain_end_of_a_child_is_left_to_the_statement_that_knows_of_parents(scene: Scene) -> None:
    """It changes nothing, and says so by leaving the child out of its answer."""
    worker = await scene.worker()
    await scene.enqueue(2)
    child, other = await scene.claim(worker)
    await scene.db.fetch("update holdfast.live_jobs set family_id = 5 where job_id = $1", child.id)
    batch = [Ended(fence(child), Complete()), Ended(fence(other), Complete())]
    assert await scene.run(attempts.complete_jobs(batch)) == [other.id]
    assert (await scene.states())[child.id] == "running"


async def test_starting_marks_only_what_was_buffered(scene: Scene) -> None:
    """A buffered attempt becomes running with the time its handler began; one that runs is left alone."""
    worker = await scene.worker()
    await scene.enqueue(2)
    running, buffered = await scene.claim(worker, limit=2, free=1)
    begun = [(fence(buffered), 0.0), (fence(running), 0.0)]
    assert await scene.run(attempts.start_jobs(begun)) == [buffered.id]
    assert await scene.db.value(
        "select bool_and(state = 'running' and started_at >= claimed_at) from holdfast.live_jobs"
    )


@pytest.mark.parametrize(
    ("outcome", "delay", "counts", "state"),
    [
        (Outcome.RETRIED, 60.0, True, "scheduled"),
        (Outcome.RETRIED, 0.0, True, "available"),
        (Outcome.SNOOZED, 60.0, False, "scheduled"),
        (Outcome.RELEASED, 0.0, False, "available"),
    ],
)
async def test_an_attempt_that_ends_without_ending_its_job_is_kept_as_history(
    scene: Scene, outcome: Outcome, delay: float, counts: bool, state: str
) -> None:
    """The job goes on as the decision says; errors are counted, patience is not."""
    worker = await scene.worker()
    job = await scene.one(worker)
    await scene.run(attempts.report_progress(fence(job), 0.5, "half"))
    decision = PutBack(outcome, delay, counts, "a reason", "a trace")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), decision)]))
    assert await scene.db.fetch(
        "select state, failures, attempt, worker_id, claimed_at, started_at, progress, progress_note "
        "from holdfast.live_jobs"
    ) == [(state, int(counts), 1, None, None, None, None, None)]
    assert await scene.db.value(
        "select run_at - (select ended_at from holdfast.attempts) from holdfast.live_jobs"
    ) == timedelta(seconds=delay)
    assert await scene.db.fetch(
        "select job_id, attempt, outcome, reason, error, worker_id, "
        "claimed_at <= started_at and started_at <= ended_at from holdfast.attempts"
    ) == [(job.id, 1, outcome, "a reason", "a trace", worker, True)]


async def test_a_job_whose_cancel_was_asked_for_does_not_go_on(scene: Scene) -> None:
    """Put back for whatever reason, it ends as cancelled, and the record says what the attempt came to."""
    job = await scene.one()
    assert await scene.run(cancel_jobs([job.id], Mandate("somebody"))) == {job.id: False}
    decision = PutBack(Outcome.RETRIED, 60.0, counts=True, reason="ConnectionError: gone")
    assert await scene.run(attempts.put_back_jobs([Returned(fence(job), decision)])) == [job.id]
    assert await scene.db.fetch("select outcome, reason, failures from holdfast.finished_jobs") == [
        ("cancelled", "cancel requested; last attempt: ConnectionError: gone", 1)
    ]


async def test_a_handler_that_completes_in_spite_of_a_cancel_has_completed(scene: Scene) -> None:
    """The record says what really happened."""
    job = await scene.one()
    await scene.run(cancel_jobs([job.id], Mandate("somebody")))
    await scene.complete(job)
    assert await scene.states() == {job.id: "completed"}


async def test_people_see_every_state_of_a_job(scene: Scene) -> None:
    """The overview joins the rows of a job, wherever it stands, and shows each job once."""
    worker = await scene.worker()
    later = datetime(2099, 1, 1, tzinfo=UTC)
    expected: dict[int, str] = {}
    for decision, state in (
        (Complete(None), "completed"),
        (Fail("e", "r"), "failed"),
        (Stop("r"), "cancelled"),
    ):
        job = await scene.one(worker)
        await scene.run(attempts.finish_jobs([Ended(fence(job), decision)]))
        expected[job.id] = state
    running, buffered = await scene.enqueue(2)
    await scene.claim(worker, limit=2, free=1)
    (scheduled,) = await scene.enqueue(run_at=later)
    (waiting,) = await scene.enqueue()
    await scene.db.fetch("update holdfast.live_jobs set state = 'waiting' where job_id = $1", waiting)
    (available,) = await scene.enqueue()
    expected |= {
        running: "running",
        buffered: "claimed",
        scheduled: "scheduled",
        waiting: "waiting",
        available: "available",
    }
    assert await scene.states() == expected
    for job_id, state in expected.items():
        end = await scene.run(jobs.job_end(job_id))
        assert end is not None
        assert end.state == state


async def test_ended_jobs_lie_in_the_partition_of_their_day(scene: Scene) -> None:
    """The partitions of today are there from the start: completed and unhappy ends each go to their half."""
    worker = await scene.worker()
    await scene.enqueue(3)
    claimed = await scene.claim(worker)
    decisions: list[Final] = [Complete(None), Fail("e", "r"), Stop("r")]
    await scene.run(
        attempts.finish_jobs([Ended(fence(job), one) for job, one in zip(claimed, decisions, strict=True)])
    )
    assert await scene.db.fetch(
        "select tableoid::regclass::text ~ 'completed_20[0-9]{6}$', outcome "
        "from holdfast.finished_jobs order by job_id"
    ) == [(True, "completed"), (False, "failed"), (False, "cancelled")]
    assert await scene.db.value("select count(*) from holdfast.finished_unhappy_rest") == 0


async def test_finishing_and_cancelling_the_same_jobs_at_once_does_not_deadlock(scene: Scene) -> None:
    """Both lock rows in the order of their ids, in whatever order they were asked."""
    worker = await scene.worker()
    finishing, cancelling = await scene.session(), await scene.session()
    for _ in range(10):
        await scene.enqueue(60)
        claimed = await scene.claim(worker, limit=60)
        backwards = [Ended(fence(job), Complete(None)) for job in reversed(claimed)]
        await asyncio.gather(
            scene.run(attempts.finish_jobs(backwards), finishing),
            scene.run(cancel_jobs([job.id for job in claimed], Mandate("somebody")), cancelling),
        )
        assert await scene.db.value("select count(*) from holdfast.live_jobs") == 0


@pytest.mark.parametrize(
    ("failures", "started", "cancelled", "fate", "state"),
    [
        (0, True, False, "lost", "available"),
        (4, True, False, "failed", "failed"),
        (4, False, False, "released", "available"),
        (0, True, True, "cancelled", "cancelled"),
        (0, False, True, "cancelled", "cancelled"),
    ],
)
async def test_a_rescue_decides_by_what_had_happened(
    scene: Scene, failures: int, started: bool, cancelled: bool, fate: str, state: str
) -> None:
    """A handler's death counts as a failure and may be the last one; a buffered job is given back unspent."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue(max_attempts=5)
    await scene.claim(worker, limit=1, free=int(started))
    await scene.db.fetch("update holdfast.live_jobs set failures = $1", failures)
    if cancelled:
        await scene.run(cancel_jobs([job_id], Mandate("somebody")))
    await scene.lose(worker)
    rescued = await scene.run(workers.rescue_jobs(await scene.lead(), 10))
    assert [(one.job_id, one.fate) for one in rescued] == [(job_id, fate)]
    assert await scene.states() == {job_id: state}
    counted = failures + int(started)
    assert await scene.db.value("select failures from holdfast.job_overview") == counted


async def test_only_the_leader_of_the_present_term_rescues_and_stages(scene: Scene) -> None:
    """A leader that was followed by another changes nothing."""
    worker = await scene.worker()
    await scene.one(worker)
    await scene.enqueue(run_at=datetime(2099, 1, 1, tzinfo=UTC))
    await scene.db.fetch("update holdfast.live_jobs set run_at = '2001-01-01' where state = 'scheduled'")
    former = await scene.lead()
    await scene.db.fetch("update holdfast.leader set expires_at = '-infinity'")
    assert await scene.run(leader.lead("another", None, 60.0)) == former + 1
    await scene.db.fetch("update holdfast.workers set ttl = '0', expires_at = '-infinity'")
    before = await scene.dump()
    assert await scene.run(workers.declare_lost(former)) == []
    assert await scene.run(workers.rescue_jobs(former, 10)) == []
    await scene.run(leader.stage_jobs(former, 10))
    assert await scene.dump() == before
    assert await scene.run(workers.declare_lost(former + 1)) == [worker]


async def test_a_rescue_leaves_a_long_job_of_a_living_worker_alone(scene: Scene) -> None:
    """However old an attempt is, only the worker's lease decides."""
    worker = await scene.worker()
    job = await scene.one(worker)
    await scene.db.fetch("update holdfast.live_jobs set claimed_at = '2001-01-01', started_at = '2001-01-01'")
    term = await scene.lead()
    assert await scene.run(workers.declare_lost(term)) == []
    assert await scene.run(workers.rescue_jobs(term, 10)) == []
    assert await scene.run(attempts.held_attempts(worker)) == [Fence(job.id, 1)]
