"""What a handler may come to, the same in every executor."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import slots
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.slots import Slots
from tests.worker import handlers

ATTEMPTS = "select attempt, outcome, reason from holdfast.attempts order by attempt"
FINISHED = "select outcome, failures, attempt from holdfast.finished_jobs"


async def test_a_result_comes_back_from_every_executor(single: Any, work: Any, run: Any) -> None:
    """What a handler returns is what the client's wait answers, wherever the handler runs."""
    app = single(handlers.add)
    await work(app)
    assert await run(app, a=2, b=40) == 42


async def test_an_error_is_told_and_tried_again(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """The attempt keeps the error in one line and its traceback; the next attempt knows of the failure."""
    app = single(handlers.fail)
    await work(app)
    assert await run(app) == "after 1"
    assert await db.fetch(ATTEMPTS) == [(1, "retried", "RuntimeError: no such luck")]
    error = await db.value("select error from holdfast.attempts")
    assert error.startswith("Traceback")
    assert "in fail\n" in error
    assert error.endswith("RuntimeError: no such luck")


async def test_what_is_told_of_an_error_begins_in_the_handler(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """How the worker came to call it says nothing of the error."""
    app = single(handlers.fail)
    await work(app)
    await run(app)
    error = str(await db.value("select error from holdfast.attempts"))
    assert handlers.__file__ in error
    assert str(Path(slots.__file__).parent) not in error


async def test_what_is_told_of_an_error_before_any_handler_is_all_of_it(
    work: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Where the worker itself comes to grief, how it did is what one wants to know."""
    app = holdfast.App()

    @app.job
    async def it(n: int) -> None: ...

    await work(app)
    await client.enqueue(holdfast.JobRequest("it", "{}"))
    await eventually(lambda: db.value("select true from holdfast.finished_jobs"))
    error = str(await db.value("select error from holdfast.finished_jobs"))
    assert str(Path(slots.__file__).parent) in error


async def test_a_policy_that_came_past_the_registry_hurts_one_attempt(
    work: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """It rests as long as jobs do whose kind says nothing, and the slot goes on."""
    app = holdfast.App()

    @app.job(max_attempts=2)
    async def it() -> None:
        raise RuntimeError

    @app.job
    async def other() -> str:
        return "alive"

    broken: Any = 5
    it.policy = replace(it.policy, retry=broken)
    await work(app, slots=1)
    job = await client.enqueue(it.job())
    assert await client.wait((await client.enqueue(other.job())).id, timeout=30) == "alive"
    # What became of the two is written side by side.
    await eventually(lambda: db.value("select true from holdfast.attempts"))
    record = await client.job(job.id)
    assert (str(record.state), record.failures) == ("scheduled", 1)
    assert "RuntimeError" in str(await db.value("select reason from holdfast.attempts"))


async def test_a_kind_that_went_missing_costs_an_attempt_and_no_slot(
    work: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """However a worker came by the job: it is not held for as long as the worker lives."""
    app = holdfast.App()

    @app.job(max_attempts=2)
    async def it() -> None: ...

    @app.job
    async def other() -> str:
        return "alive"

    await work(app, slots=1)
    del app.handlers["it"]
    job = await client.enqueue(it.job())
    assert await client.wait((await client.enqueue(other.job())).id, timeout=30) == "alive"
    # What became of the two is written side by side.
    await eventually(lambda: db.value("select true from holdfast.attempts"))
    record = await client.job(job.id)
    assert (str(record.state), record.failures) == ("scheduled", 1)
    assert await db.value("select reason from holdfast.attempts") == "KeyError: 'it'"


async def test_a_slot_that_fails_says_so_and_another_takes_its_place(
    work: Any, client: holdfast.Client, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason, which nobody can foresee."""
    app = holdfast.App()

    @app.job
    async def other() -> str:
        return "alive"

    await work(app, slots=1)
    unforeseen = OSError("unforeseen")

    async def fail(_slots: Slots) -> None:
        monkeypatch.undo()
        raise unforeseen

    monkeypatch.setattr(Slots, "serve", fail)
    for _ in range(2):
        assert await client.wait((await client.enqueue(other.job())).id, timeout=30) == "alive"
    await probe.wait_for("slot.failed", lambda fields: fields["error"] is unforeseen)


@pytest.mark.parametrize("suspect", [True, False])
async def test_a_suspect_is_recorded_as_begun_before_it_begins(
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    suspect: bool,
) -> None:
    """If it ends its worker at once, that counts; others save the write: nearly all end within a second."""

    def measure(ahead: Prefetch) -> None:
        ahead.room = 5

    monkeypatch.setattr(Prefetch, "measure", measure)
    app, last = holdfast.App(), asyncio.Event()

    @app.job
    async def first() -> None:
        await last.wait()

    @app.job
    async def second() -> str:
        return str(await db.value("select state from holdfast.live_jobs where kind = 'second'"))

    await client.enqueue(first.job())
    handle = await client.enqueue(second.job())
    await db.fetch("update holdfast.live_jobs set suspect = $1 where kind = 'second'", suspect)
    await work(app, slots=1)
    await eventually(lambda: db.value("select true from holdfast.live_jobs where state = 'claimed'"))
    last.set()
    assert await client.wait(handle.id, timeout=20) == ("running" if suspect else "claimed")


async def test_poison_fails_at_once(single: Any, work: Any, run: Any, db: ThrowawayDatabase) -> None:
    """A job that its handler calls hopeless is not tried again, however many attempts are left."""
    app = single(handlers.poison, max_attempts=5)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match="poison: Poison: the repository is gone"):
        await run(app)
    assert await db.fetch(ATTEMPTS) == []
    assert "in poison\n" in await db.value("select error from holdfast.finished_jobs")


async def test_a_snooze_costs_nothing(single: Any, work: Any, run: Any, db: ThrowawayDatabase) -> None:
    """A snoozed job runs again after its rest, with no failure counted."""
    app = single(handlers.snooze, max_attempts=1)
    await work(app)
    assert await run(app) == "rested"
    assert await db.fetch(ATTEMPTS) == [(1, "snoozed", "not yet")]
    assert await db.fetch(FINISHED) == [("completed", 0, 2)]


async def test_a_cancel_by_the_handler_ends_the_job(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """A handler that returns Cancel ends its job as cancelled, with its reason."""
    app = single(handlers.cancel)
    await work(app)
    with pytest.raises(holdfast.JobCancelled, match="nobody wants it"):
        await run(app)
    assert await db.fetch(FINISHED) == [("cancelled", 0, 1)]


async def test_a_retry_counts_and_chooses_its_own_delay(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """Retry(delay) counts a failure but waits as long as the handler says, not as the backoff says."""
    app = single(handlers.retry, retry=holdfast.Constant(timedelta(hours=1)))
    await work(app)
    assert await run(app) == "at last"
    assert await db.fetch(ATTEMPTS) == [(1, "retried", "the mirror is busy")]
    assert await db.fetch(FINISHED) == [("completed", 1, 2)]


async def test_a_retry_at_the_last_attempt_fails_the_job(single: Any, work: Any, run: Any) -> None:
    """Asking for another try does not give more attempts than the job has."""
    app = single(handlers.retry, max_attempts=1)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match=r"attempts exhausted \(1 of 1\): the mirror is busy"):
        await run(app)


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
async def test_what_ends_a_program_is_an_error_like_any_other(
    how: str, single: Any, work: Any, run: Any, probe: Probe
) -> None:
    """Such an exception fails the attempt; the worker and its slot go on."""
    app = single(handlers.leave, max_attempts=1)
    app.job(kind="after", executor="thread")(handlers.add)
    await work(app, slots=1)
    with pytest.raises(holdfast.JobFailed, match=rf"attempts exhausted \(1 of 1\): {how}"):
        await run(app, how=how)
    await _is_alive(app, run, probe)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (handlers.give_up_like_asyncio, "CancelledError"),
        (handlers.stop_iteration, "(StopIteration|RuntimeError: coroutine raised StopIteration)"),
        (handlers.unspeakable, "Unspeakable: <exception str\\(\\) failed>"),
        (handlers.untellable, "Untellable, which cannot be told of: that raises KeyError"),
        (handlers.give_strange_data, "RuntimeError: cannot be dumped"),
        (handlers.enqueue_badly, "ArgumentsInvalid: arguments of 'other' are wrong"),
        (handlers.lose_another, "LeaseLost: attempt 3 of job 999 has lost its lease"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_no_error_of_a_handler_hurts_its_slot(
    handler: Any, reason: str, single: Any, work: Any, run: Any, probe: Probe
) -> None:
    """Errors that futures, text or JSON cannot carry are counted, and the only slot takes the next job."""
    app = single(handler, max_attempts=2)
    await work(app, slots=1)
    with pytest.raises(holdfast.JobFailed, match=rf"attempts exhausted \(2 of 2\): {reason}"):
        await run(app)
    await _is_alive(app, run, probe)


async def _is_alive(app: holdfast.App, run: Any, probe: Probe) -> None:
    ended = len(probe.seen("attempt.ended"))
    with pytest.raises(holdfast.JobFailed):
        await run(app, **({"how": "SystemExit"} if "how" in app.handlers["it"].signature.names else {}))
    assert len(probe.seen("attempt.ended")) > ended


async def test_a_handler_that_cancels_its_own_task_costs_no_slot(client: holdfast.Client, work: Any) -> None:
    """The slot whose task a handler cancelled is opened again."""
    app = holdfast.App()
    app.job(kind="it")(handlers.cancel_own_task)
    app.job(kind="add")(handlers.add)
    await work(app, slots=1)
    first = await client.enqueue(app.request("it", {}))
    assert await client.wait(first.id, timeout=20) is None
    second = await client.enqueue(app.request("add", {"a": 1, "b": 1}))
    assert await client.wait(second.id, timeout=20) == 2


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ('{"a": 1}', "missing required field `b`"),
        ('{"a": 1, "b": "two"}', "Expected `int`, got `str`"),
        ('{"a": 1, "b": 2, "c": 3}', "unknown field `c`"),
        ('{"a": 1, "b": 1.5}', "Expected `int`, got `float`"),
    ],
)
async def test_arguments_that_do_not_fit_are_poison(
    args: str, problem: str, single: Any, work: Any, db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """What plain SQL enqueued past all checks fails at once and says which argument is wrong."""
    await work(single(handlers.add))
    job_id = await db.value("select holdfast.enqueue('it', $1::jsonb)", args)
    with pytest.raises(holdfast.JobFailed) as failure:
        await client.wait(job_id, timeout=20)
    assert problem in str(failure.value)
    assert "poison: ArgumentsInvalid: arguments of 'it' are wrong" in str(failure.value)
    assert await db.fetch(FINISHED) == [("failed", 1, 1)]


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("large", "the result of 'it': 1,100,002 bytes where 1,048,576 are allowed"),
        ("object", "the result of 'it' cannot be stored: a value of type object cannot be turned into JSON"),
        ("NUL", "the result of 'it' cannot be stored: it holds a NUL character"),
        ("endless", "the result of 'it' cannot be stored: "),
        ("surrogate", "the result of 'it' cannot be stored: .*surrogate"),
        ("snooze", "Snooze.delay is nan"),
        ("cancel", "Cancel.reason is None: give a string"),
        ("retry", "Retry.reason is 5: give a string"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_the_job(
    what: str, problem: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """The work is done but its answer cannot be stored: the job fails, says why and is not tried again."""
    app = single(handlers.give)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match=f"poison: {problem}"):
        await run(app, what=what)
    assert await db.fetch(FINISHED) == [("failed", 1, 1)]


@pytest.mark.parametrize("kind", [OSError, SystemExit])
async def test_a_backoff_function_that_raises_gives_way_to_the_default(
    single: Any,
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    eventually: Any,
    kind: type[BaseException],
) -> None:
    """The job is put back with the default rest, and the attempt's error tells of the function's."""

    def broken(_failures: int) -> float:
        msg = "no idea"
        raise kind(msg)

    app = single(handlers.fail, retry=holdfast.Custom(broken))
    await work(app)
    await client.enqueue(app.request("it", {}))
    error = await eventually(lambda: db.value("select error from holdfast.attempts"))
    assert "backoff: " in error
    assert f"{kind.__name__}('no idea')" in error
    rest = await db.value(
        "select extract(epoch from l.run_at - a.ended_at) from holdfast.live_jobs l, holdfast.attempts a"
    )
    assert 23 < rest < 37
