"""Steps: done once, remembered, retried, and their errors met again as they were."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import Probe, ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))


class OutOfStock(Exception):
    """An error of the application, with a fact of its own."""

    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{item} is out of stock")
        self.item, self.left = item, left


async def double(n: int) -> int:
    """A step."""
    return 2 * n


def shout(text: str) -> str:
    """A step in a thread."""
    return text.upper()


def sum_up(numbers: list[int]) -> int:
    """A step in a process."""
    return sum(numbers)


class Unknown(Exception):
    """An error that no application has registered."""


def run_out() -> None:
    """A step that fails with an error of the application."""
    raise OutOfStock("kelp", 3)


def look_up() -> None:
    """A step that fails with a built-in error, whose argument is no text."""
    raise KeyError(7)


def fall_over() -> None:
    """A step that fails with an error that nobody knows."""
    msg = "over"
    raise Unknown(msg)


async def test_a_run_calls_its_steps_and_returns(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """A workflow is plain code; what its steps returned is recorded place by place."""

    @app.workflow
    async def plan(run: holdfast.Run, n: int) -> str:
        doubled = await run.step(double, n)
        total = await run.step(sum_up, [doubled, 2], executor="process")
        return await run.step(shout, f"got {total}")

    await work(app)
    handle = await client.enqueue(plan.job(n=4))
    assert await client.wait(handle.id, timeout=20) == "GOT 10"
    steps = await client.history(handle.id)
    assert [(one.place, one.name, one.state, one.result) for one in steps] == [
        (0, "double", "completed", 8),
        (1, "sum_up", "completed", 10),
        (2, "shout", "completed", "GOT 10"),
    ]
    assert await db.value("select count(*) from holdfast.attempts") == 0


async def test_a_finished_step_is_not_run_again_after_a_wait(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """A run that slept goes on behind the steps it has done; each was called once."""

    async def note(what: str) -> str:
        calls.append(what)
        return what

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        first = await run.step(note, "first")
        payload = await run.wait_signal("go")
        second = await run.step(note, payload["what"])
        await run.sleep(timedelta(milliseconds=1200))
        return [first, second, await run.step(note, "third")]

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go", {"what": "second"})
    assert await client.wait(handle.id, timeout=20) == ["first", "second", "third"]
    assert calls == ["first", "second", "third"]
    record = await client.job(handle.id)
    assert record.failures == 0
    assert record.attempt >= 2


async def test_a_step_that_committed_is_not_run_again_after_its_worker_was_lost(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    db: ThrowawayDatabase,
    lose: Any,
    probe: Probe,
) -> None:
    """Another attempt finds the first step done and runs the second one again, which had not ended."""
    hang = threading.Event()

    async def charge() -> str:
        calls.append("charge")
        return "receipt"

    def pack() -> str:
        calls.append("pack")
        if calls.count("pack") == 1:
            hang.wait(20)
        return "parcel"

    @app.workflow
    async def order(run: holdfast.Run) -> list[str]:
        return [await run.step(charge), await run.step(pack)]

    await work(app, slots=2, ttl=1.0)
    handle = await client.enqueue(order.job())
    await probe.wait_for("attempt.started", lambda fields: fields["running"].claimed.id == handle.id)
    while calls.count("pack") < 1:
        await db.value("select pg_sleep(0.01)")
    await lose()
    assert await client.wait(handle.id, timeout=30) == ["receipt", "parcel"]
    hang.set()
    assert calls == ["charge", "pack", "pack"]


async def test_a_failed_step_is_retried_with_its_own_backoff(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """Each try is a line in the log of calls; the run itself does not fail."""

    async def flaky() -> str:
        calls.append("try")
        if len(calls) < 3:
            raise ConnectionError(len(calls))
        return "done"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        return await run.step(flaky, max_attempts=3, retry=SOON)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "done"
    lines = await client.activities(handle.id)
    assert [(line.step, line.tried, line.result) for line in lines] == [
        ("flaky", 1, None),
        ("flaky", 2, None),
        ("flaky", 3, "done"),
    ]
    assert [line.error and line.error["type"] for line in lines] == [
        "ConnectionError",
        "ConnectionError",
        None,
    ]
    assert (await client.job(handle.id)).failures == 0


async def test_the_rest_before_a_try_outlives_the_attempt(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """A long rest suspends the run; when it goes on, the tries are counted on."""

    async def never() -> None:
        msg = "no luck"
        raise ValueError(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(never, max_attempts=2, retry=holdfast.Constant(timedelta(hours=1)))
        except ValueError as error:
            return str(error)
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "the next try of step 'never'"
    due = "select wake_at > holdfast.now() + interval '59 minutes' and tries = 1 from holdfast.steps"
    assert await db.value(due)
    await db.fetch("update holdfast.steps set wake_at = holdfast.now()")
    await db.fetch("update holdfast.live_jobs set run_at = holdfast.now()")
    await db.value("select pg_notify('holdfast', 'stage')")
    assert await client.wait(handle.id, timeout=20) == "no luck"
    assert [line.tried for line in await client.activities(handle.id)] == [1, 2]


async def test_an_error_is_the_same_at_first_and_at_a_replay(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """Built-in errors, registered ones and unknown ones are caught by the same clauses every time."""
    app.error(OutOfStock)

    class Unregistered(Exception):
        pass

    async def fail(which: str) -> None:
        match which:
            case "key":
                raise KeyError(which)
            case "own":
                raise OutOfStock("kelp", 3)
        raise Unregistered(which)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        met = []
        for which in ("key", "own", "other"):
            try:
                await run.step(fail, which, name=which)
            except KeyError as error:
                met.append(f"key {error}")
            except OutOfStock as error:
                met.append(f"{error}: {error.item} {error.left}")
            except holdfast.StepFailed as error:
                met.append(f"{error.step} {error.problem} {error.kind.endswith('Unregistered')}")
        calls.append(" | ".join(met))
        await run.wait_signal("go")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go")
    met = await client.wait(handle.id, timeout=20)
    assert met == ["key 'key'", "kelp is out of stock: kelp 3", "other other True"]
    assert set(calls) == {" | ".join(met)}


async def test_an_error_whose_arguments_are_no_data_keeps_its_text_and_facts(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It is still caught as itself; what JSON cannot hold is all that is lost of it."""

    class Refused(Exception):
        """Says what it was given."""

        def __init__(self, card: object, code: int) -> None:
            super().__init__(card, code)
            self.card, self.code = card, code

        def __str__(self) -> str:
            return f"refused with {self.code}" if hasattr(self, "card") else super().__str__()

    app.error(Refused)

    async def pay() -> None:
        raise Refused(object(), 51)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(pay)
        except Refused as error:
            return f"{error}: {error.code}"
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "refused with 51: 51"


@pytest.mark.parametrize("executor", ["loop", "thread", "process"])
async def test_an_error_is_the_same_wherever_its_step_runs(
    client: holdfast.Client, work: Any, app: holdfast.App, executor: str
) -> None:
    """A child process tells of it what the worker's own would have recorded."""
    app.error(OutOfStock)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        met = []
        for function in (run_out, look_up, fall_over):
            try:
                await run.step(function, executor=executor)
            except OutOfStock as error:
                met.append(f"{error}: {error.item} {error.left}")
            except KeyError as error:
                met.append(repr(error))
            except holdfast.StepFailed as error:
                met.append(f"{error.kind}: {error.problem}")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [
        "kelp is out of stock: kelp 3",
        "KeyError(7)",
        f"{__name__}.Unknown: over",
    ]


async def test_a_handler_may_run_elsewhere_as_a_step(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """One that runs in a thread as a job in a process of its own, and the other way round."""
    threaded = app.job(kind="threaded")(sum_up)
    apart = app.job(kind="apart", executor="process")(sum_up)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[int]:
        there = await run.step(threaded, [1, 2], executor="process")
        return [there, await run.step(apart, [3, 4], executor="thread"), await run.step(apart, [5, 6])]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [3, 7, 11]


async def test_a_step_that_takes_too_long_fails_with_a_timeout(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """On the loop and in a thread alike."""
    hang = threading.Event()

    def stuck() -> None:
        hang.wait(20)

    async def slow() -> None:
        await run_forever()

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        met = []
        for function in (slow, stuck):
            try:
                await run.step(function, timeout=0.05)
            except TimeoutError as error:
                met.append(str(error))
        hang.set()
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [
        "step 'slow' took longer than 0.05 s",
        "step 'stuck' took longer than 0.05 s",
    ]


async def run_forever() -> None:
    """Wait for nothing."""
    await asyncio.Event().wait()


async def test_an_error_of_the_run_ends_it_at_once(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A replay would meet the same error again, so no attempt is wasted on it."""

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(double, 1)
        msg = "not today"
        raise LookupError(msg)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="LookupError: not today"):
        await client.wait(handle.id, timeout=20)
    assert (await client.job(handle.id)).attempt == 1


async def test_a_step_commits_with_its_record_or_not_at_all(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """What a step in a transaction writes is there exactly if the step is."""
    table = f'"{db.schema}".orders'
    await db.fetch("create table holdfast.orders (id integer primary key)")

    async def store(connection: asyncpg.Connection[Any], number: int, *, breaks: bool) -> int:
        await connection.execute(f"insert into {table} values ({number})")  # noqa: S608 - the test's own table
        if breaks:
            msg = "after the write"
            raise RuntimeError(msg)
        return number

    @app.workflow
    async def plan(run: holdfast.Run) -> int:
        with pytest.raises(RuntimeError, match="after the write"):
            await run.step(store, 1, kwargs={"breaks": True}, name="broken", transaction=True)
        return await run.step(store, 2, kwargs={"breaks": False}, transaction=True)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == 2
    assert await db.fetch("select id from holdfast.orders") == [(2,)]
    assert [one.state for one in await client.history(handle.id)] == ["failed", "completed"]


async def test_a_result_that_is_too_large_fails_its_step_with_advice(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """The error names the step and the limit, and is not retried."""

    async def huge() -> str:
        return "x" * (2 * 1024 * 1024)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(huge, max_attempts=5)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=r"result of step 'huge'.*2,097,154 bytes where 1,048,576"):
        await client.wait(handle.id, timeout=20)
    assert len(await client.activities(handle.id)) == 1


async def test_steps_begun_at_once_in_one_branch_are_refused(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Nobody could tell at a replay which was the first."""

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await asyncio.gather(run.sleep(3600), run.step(double, 1))

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="StepsAtOnce: 'sleep' was begun in a task of its own"):
        await client.wait(handle.id, timeout=20)


async def test_large_results_are_kept_apart(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """What is remembered is a reference; the data are read when they are wanted, also at a replay."""

    async def picture() -> bytes:
        return b"\x00" * 3_000_000

    def table() -> list[int]:
        return list(range(300_000))

    @app.workflow
    async def plan(run: holdfast.Run) -> list[int]:
        pixels, numbers = await run.blob(picture), await run.blob(table)
        await run.wait_signal("go")
        return [len(await run.read(pixels)), sum(await run.read(numbers)), pixels.size]

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == [3_000_000, sum(range(300_000)), 3_000_000]
    assert await db.value("select max(length(result::text)) from holdfast.steps") < 100


async def test_the_log_of_calls_is_redacted_by_rule(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """What the run remembers is whole; a rule that fails shows nothing and fails nothing."""

    @app.redact
    def hide(step: str, value: Any) -> Any:
        if step == "broken rule":
            raise ValueError(value)
        return "secret" if step == "login" else value

    async def login(password: str) -> str:
        return f"token for {password}"

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        names = ("login", "broken rule", "open")
        return [await run.step(login, "hunter2", name=name) for name in names]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == ["token for hunter2"] * 3
    lines = await client.activities(handle.id)
    failed = {"left_out": "it cannot be shown, or a redaction rule failed"}
    assert [(line.parameters, line.result) for line in lines] == [
        ("secret", "secret"),
        (failed, failed),
        ({"args": ["hunter2"]}, "token for hunter2"),
    ]


async def test_an_error_is_redacted_by_rule_as_well(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It tells what the step was given; the run itself meets all of it."""

    @app.redact
    def hide(_step: str, value: Any) -> Any:
        return json.loads(json.dumps(value).replace("4111", "****"))

    async def charge(card: str) -> None:
        raise ValueError(f"card {card} was declined")

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(charge, "4111", max_attempts=2, retry=holdfast.Constant(timedelta(0)))
        except ValueError as error:
            return str(error)
        return "charged"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "card 4111 was declined"
    errors = [line.error for line in await client.activities(handle.id)]
    text = "card **** was declined"
    assert errors == [{"type": "ValueError", "message": text, "args": [text]}] * 2


async def test_arguments_that_cannot_be_shown_do_not_fail_a_step(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A list that holds itself, and an object that cannot even be described, are left out of the log."""

    class Silent:
        def __repr__(self) -> str:
            raise ValueError

    endless: list[Any] = []
    endless.append(endless)

    async def count(things: list[Any]) -> int:
        return len(things)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[int]:
        return [await run.step(count, endless), await run.step(count, [Silent()])]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [1, 1]
    assert [set(line.parameters) for line in await client.activities(handle.id)] == [{"left_out"}] * 2


async def test_a_step_that_lasts_is_shown_as_running(
    client: holdfast.Client, work: Any, app: holdfast.App, eventually: Any
) -> None:
    """One that is done quickly is written once, when it is done."""
    go_on = asyncio.Event()

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(double, 1)
        await run.step(go_on.wait, name="long")

    await work(app)
    handle = await client.enqueue(plan.job())

    async def states() -> list[str]:
        return [f"{one.name} {one.state}" for one in await client.history(handle.id)]

    async def shown() -> bool:
        return await states() == ["double completed", "long running"]

    await eventually(shown)
    go_on.set()
    await client.wait(handle.id, timeout=20)
    assert await states() == ["double completed", "long completed"]
