"""What an operator sees of jobs and does to them, one by one."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.errors import DuplicateJob, JobNotFound, StateConflict
from holdfast.model.job import JobState
from holdfast.store.doctor import held_for_people
from holdfast.testing import Probe, ThrowawayDatabase


@pytest.fixture
def app() -> holdfast.App:
    """Knows a kind that answers, one that fails and one that never ends by itself."""
    app = holdfast.App()

    @app.job
    async def echo(word: str = "hi") -> str:
        return word

    @app.job(max_attempts=2, retry=holdfast.Constant(timedelta(milliseconds=5)))
    async def broken(word: str = "hi") -> None:
        raise RuntimeError(word)

    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    return app


async def begin(work: Any, app: holdfast.App, probe: Probe, **options: Any) -> None:
    """Start a worker and wait until it leads."""
    await work(app, **options)
    await probe.wait_for("leader.changed")


def endings(record: Any) -> list[tuple[int, str]]:
    """The numbers and outcomes of a job's timeline."""
    return [(attempt.number, attempt.outcome) for attempt in record.attempts]


async def fail(client: holdfast.Client, app: holdfast.App, **options: Any) -> int:
    """Enqueue a job of kind broken and wait until it has failed."""
    handle = await client.enqueue(app.request("broken", {}), **options)
    with pytest.raises(holdfast.JobFailed):
        await client.wait(handle.id, timeout=20)
    return handle.id


async def test_a_job_is_shown_with_its_whole_timeline(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """Every attempt comes with its times, worker, end and error; the last one is the end of the job."""
    await begin(work, app, probe, name="first")
    job = await operator.jobs.show(await fail(client, app, tags=["a"], meta={"k": 1}))
    assert (job.state, job.args, job.tags, job.meta, job.failures) == ("failed", {}, ["a"], {"k": 1}, 2)
    assert endings(job) == [(1, "retried"), (2, "failed")]
    for attempt in job.attempts:
        assert attempt.worker == "first"
        times = [attempt.claimed_at, attempt.started_at, attempt.ended_at]
        assert times == sorted(time for time in times if time is not None)
        assert "RuntimeError: hi" in (attempt.error or "")
    assert job.attempts[1].ended_at == job.finished_at
    assert await operator.jobs.why(job.id) is None


async def test_a_job_that_holds_an_endless_number_can_be_shown(
    operator: Operator, db: ThrowawayDatabase
) -> None:
    """Plain SQL stores what Python will not read; who looks at the job sees it as it was written."""
    digits = "1" + "0" * 5000
    job_id = await db.value("select holdfast.enqueue('greet', $1::jsonb)", f'{{"n": {digits}}}')
    assert (await operator.jobs.show(job_id)).args == f'{{"n": {digits}}}'


@pytest.mark.parametrize("depth", [198, 300, 900, 3000])
async def test_a_job_whose_data_are_nested_however_deep_can_be_shown(
    operator: Operator, db: ThrowawayDatabase, depth: int
) -> None:
    """Too deep for readers it is text; 900 levels could be read here, but not by whoever is called deeper."""
    nest = "[" * depth + "]" * depth
    job_id = await db.value("select holdfast.enqueue('greet', $1::jsonb)", f'{{"n": {nest}}}')
    shown = await operator.jobs.show(job_id)
    assert shown.args == (f'{{"n": {nest}}}' if depth > 198 else msgspec.json.decode(f'{{"n": {nest}}}'))
    assert msgspec.json.encode(shown)


async def test_a_running_attempt_is_the_last_of_the_timeline(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """A job that runs shows its worker and no end."""
    await begin(work, app, probe)
    handle = await client.enqueue(app.request("endless", {}))
    await probe.wait_for("attempt.started")
    job = await operator.jobs.show(handle.id)
    assert endings(job) == [(1, "running")]
    assert job.attempts[0].ended_at is None
    assert job.attempts[0].worker_id == job.worker_id


async def test_an_unknown_job_is_named(operator: Operator) -> None:
    """Every verb says which job does not exist."""
    for verb in (operator.jobs.show, operator.jobs.cancel, operator.jobs.retry, operator.jobs.discard):
        with pytest.raises(JobNotFound, match="job 4711 does not exist"):
            await verb(4711)


async def test_a_failed_job_is_retried_under_its_id_with_its_history(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """Its attempts stay, failures begin at 0 and attempt numbers go on."""
    await begin(work, app, probe)
    job_id = await fail(client, app)
    await operator.jobs.retry(job_id, "fixed upstream")
    with pytest.raises(holdfast.JobFailed, match=r"attempts exhausted \(2 of 2\)"):
        await client.wait(job_id, timeout=20)
    job = await operator.jobs.show(job_id)
    assert endings(job) == [(1, "retried"), (2, "failed"), (3, "retried"), (4, "failed")]
    assert (job.failures, job.attempt) == (2, 4)
    act = (await operator.audit(subject=f"job {job_id}"))[0]
    assert (act.actor, act.action, act.reason) == ("alice", "job.retry", "fixed upstream")
    assert act.detail["before"]["state"] == "failed"
    assert act.detail["after"]["state"] == "available"


async def test_a_job_cancelled_again_and_again_keeps_every_end(
    operator: Operator, client: holdfast.Client, app: holdfast.App
) -> None:
    """Ends that met no attempt share a number and are kept all the same."""
    handle = await client.enqueue(app.request("echo", {}))
    for _ in range(2):
        assert await operator.jobs.cancel(handle.id, "not now") is True
        await operator.jobs.retry(handle.id)
    job = await operator.jobs.show(handle.id)
    assert (job.state, endings(job)) == ("available", [(0, "cancelled"), (0, "cancelled")])
    assert {attempt.reason for attempt in job.attempts} == {"not now"}


async def test_a_scheduled_job_is_retried_now(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """Retry of a job that is due later runs it at once."""
    await begin(work, app, probe)
    handle = await client.enqueue(app.request("echo", {"word": "early"}), delay=timedelta(days=1))
    assert "it is due at" in (await operator.jobs.why(handle.id) or "")
    await operator.jobs.retry(handle.id)
    assert await client.wait(handle.id, timeout=10) == "early"


async def test_a_retry_wakes_a_sleeping_worker(
    operator: Operator,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    probe: Probe,
    db: ThrowawayDatabase,
    eventually: Any,
) -> None:
    """The worker hears of the job and does not wait for its next look."""
    handle = await client.enqueue(app.request("echo", {}))
    await operator.jobs.cancel(handle.id)
    await begin(work, app, probe, poll=3600.0)
    await eventually(lambda: db.value("select wakes_below = 10 from holdfast.workers"))
    await operator.jobs.retry(handle.id)
    assert await client.wait(handle.id, timeout=10) == "hi"


@pytest.mark.parametrize("state", ["available", "running", "completed"])
async def test_a_retry_is_refused_where_it_makes_no_sense(
    state: str, operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """The refusal names the state and what to do; nothing is changed or audited."""
    handle = await client.enqueue(app.request("endless" if state == "running" else "echo", {}))
    if state != "available":
        await begin(work, app, probe)
        await probe.wait_for("attempts.reported" if state == "completed" else "attempt.started")
    with pytest.raises(StateConflict, match=f"job {handle.id} is {state}: it cannot be retried; "):
        await operator.jobs.retry(handle.id)
    assert (await operator.jobs.show(handle.id)).state == state
    assert await operator.audit() == []


async def test_a_retry_names_the_job_that_holds_its_unique_key(
    operator: Operator, client: holdfast.Client, app: holdfast.App
) -> None:
    """The key is taken again by a retry; where another job has it, the retry is refused and nothing lost."""
    first = await client.enqueue(app.request("echo", {}), unique_key="one")
    await operator.jobs.cancel(first.id)
    second = await client.enqueue(app.request("echo", {}), unique_key="one")
    with pytest.raises(DuplicateJob, match=f"job {second.id} already holds unique key 'one'"):
        await operator.jobs.retry(first.id)
    assert (await operator.jobs.show(first.id)).state is JobState.CANCELLED
    await operator.jobs.cancel(second.id)
    await operator.jobs.retry(first.id)
    assert (await client.enqueue(app.request("echo", {}), unique_key="one")).id == first.id


async def test_retries_that_race_take_a_job_up_once(
    operator: Operator, client: holdfast.Client, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """Of several retries at once one wins, and the others are told that the job lives."""
    handle = await client.enqueue(app.request("echo", {}))
    await operator.jobs.cancel(handle.id)
    answers = await asyncio.gather(
        *(operator.jobs.retry(handle.id) for _ in range(4)), return_exceptions=True
    )
    assert all(isinstance(answer, StateConflict) for answer in answers if answer is not None)
    assert answers.count(None) == 1
    assert await db.value("select count(*) from holdfast.attempts") == 1
    assert await db.value("select count(*) from holdfast.audit_log where action = 'job.retry'") == 1


async def test_a_running_job_is_cancelled_in_its_worker(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """The worker is told, stops the handler, and the record says what happened."""
    await begin(work, app, probe)
    handle = await client.enqueue(app.request("endless", {}))
    await probe.wait_for("attempt.started")
    assert await operator.jobs.cancel(handle.id, "wrong customer") is False
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=10)
    assert endings(await operator.jobs.show(handle.id)) == [(1, "cancelled")]
    act = (await operator.audit())[0]
    assert (act.action, act.reason, act.detail["after"]["cancel_requested"]) == (
        "job.cancel",
        "wrong customer",
        True,
    )


async def test_a_job_that_has_ended_cannot_be_cancelled(
    operator: Operator, client: holdfast.Client, app: holdfast.App
) -> None:
    """The refusal names the end."""
    handle = await client.enqueue(app.request("echo", {}))
    await operator.jobs.cancel(handle.id)
    with pytest.raises(StateConflict, match="is cancelled: it cannot be cancelled; it has ended already"):
        await operator.jobs.cancel(handle.id)


async def test_a_discarded_job_fails_and_says_who_did_it(
    operator: Operator, client: holdfast.Client, app: holdfast.App
) -> None:
    """A job that nobody holds ends as failed, and can be retried later."""
    handle = await client.enqueue(app.request("echo", {}), delay=timedelta(days=1))
    await operator.jobs.discard(handle.id, "obsolete")
    with pytest.raises(holdfast.JobFailed, match="discarded by alice: obsolete"):
        await client.wait(handle.id)
    assert (await operator.audit())[0].action == "job.discard"
    with pytest.raises(StateConflict, match="it has ended already"):
        await operator.jobs.discard(handle.id)
    await operator.jobs.retry(handle.id)
    assert (await operator.jobs.show(handle.id)).state is JobState.AVAILABLE


async def test_a_discarded_job_waits_for_nobody_any_more(
    operator: Operator, client: holdfast.Client, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """The doctor would go on to say that somebody has to resume it."""
    handle = await client.enqueue(app.request("echo", {}))
    await db.fetch(
        "with held as (update holdfast.live_jobs set state = 'waiting', run_at = 'infinity' "
        "returning job_id) "
        "insert into holdfast.suspensions (run_id, paused, pause_reason, reason, since) "
        "select job_id, true, 'held for a person: its runner is gone', 'a person', now() from held"
    )
    assert await db.database.run(held_for_people()) == [handle.id]
    await operator.jobs.discard(handle.id)
    assert await db.database.run(held_for_people()) == []


async def test_a_running_job_cannot_be_discarded(
    operator: Operator, client: holdfast.Client, app: holdfast.App, work: Any, probe: Probe
) -> None:
    """The refusal advises to cancel it."""
    await begin(work, app, probe)
    handle = await client.enqueue(app.request("endless", {}))
    await probe.wait_for("attempt.started")
    with pytest.raises(StateConflict, match="cannot be discarded; cancel it, so that its worker stops it"):
        await operator.jobs.discard(handle.id)


async def test_logs_of_all_attempts_come_in_order_and_by_tail(
    operator: Operator, client: holdfast.Client, work: Any, probe: Probe
) -> None:
    """Lines of several attempts follow each other; a tail counts from the end; an attempt can be chosen."""
    app = holdfast.App()

    @app.job(max_attempts=2, retry=holdfast.Constant(timedelta(milliseconds=5)))
    async def talk(job: holdfast.Job) -> None:
        for number in range(3):
            job.log.info("line %s of %s", number, job.attempt)
        if job.attempt == 1:
            raise RuntimeError

    await begin(work, app, probe)
    handle = await client.enqueue(talk.job())
    await client.wait(handle.id, timeout=10)
    expected = [f"line {number} of {attempt}" for attempt in (1, 2) for number in range(3)]
    assert [line.line async for line in operator.jobs.logs(handle.id)] == expected
    assert [line.line for line in (await operator.jobs.last_logs(handle.id, limit=4)).lines] == expected[2:]
    assert [line.line async for line in operator.jobs.logs(handle.id, attempt=2)] == expected[3:]
