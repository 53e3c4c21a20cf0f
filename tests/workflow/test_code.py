"""What the code of a run may do and may not: waits in odd places, typed results, wrong use, limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pydantic
import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.testing import ThrowawayDatabase


@dataclass
class Parcel:
    """A result with a type of its own."""

    weight: float
    labels: list[str]


class Crate(pydantic.BaseModel):
    """The same as pydantic has it."""

    weight: float
    labels: list[str]


async def parcel(weight: float) -> Parcel:
    """A step that promises a dataclass."""
    return Parcel(weight, ["fragile"])


async def crate(weight: float) -> Crate:
    """A step that promises a pydantic model."""
    return Crate(weight=weight, labels=["fragile"])


async def echo(what: Any) -> Any:
    """A step."""
    return what


async def test_a_wait_is_no_error_that_code_could_catch(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """A run that falls asleep passes by `except Exception`; not even `finally` can do anything new."""

    async def note(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        try:
            return await run.wait_signal("go")
        except Exception:
            await run.step(note, "caught")
            raise
        finally:
            await run.step(note, "finally")

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    assert calls == []
    await client.signal(handle.id, "go", 1)
    assert await client.wait(handle.id, timeout=20) == 1
    assert calls == ["finally"]


async def test_a_signal_that_does_not_come_fails_a_run_that_does_not_care(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """The timeout is the error of the run."""

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        return await run.wait_signal("go", timeout=0.05)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="SignalTimeout: signal 'go' did not come in time"):
        await client.wait(handle.id, timeout=20)


async def test_a_wait_inside_of_a_step_is_refused(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A step is one thing: nobody could tell at a replay what it had waited for."""

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(lambda: run.wait_signal("go"), name="asks", executor="loop")
        except holdfast.StepsAtOnce as error:
            return str(error)
        except holdfast.StepFailed as error:
            return error.problem
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert "while branch 'main' was busy" in await client.wait(handle.id, timeout=20)


async def test_signals_that_come_from_everywhere_at_once_are_read_once_each(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Some before a wait, some during it, some while the run falls asleep or wakes."""
    count = 60

    @app.workflow
    async def collect(run: holdfast.Run) -> list[Any]:
        return sorted([await run.wait_signal("n") for _ in range(count)])

    await work(app)
    handle = await client.enqueue(collect.job())
    await asyncio.gather(*(client.signal(handle.id, "n", n) for n in range(count)))
    assert await client.wait(handle.id, timeout=30) == list(range(count))


async def test_a_payload_comes_as_it_was_sent(client: holdfast.Client, work: Any, app: holdfast.App) -> None:
    """Numbers, nothing, text of any language, the order of keys; at a replay too."""
    payload = {"z": 1, "a": [None, True, 1.5, 10**15], "ü": "日本\n\\"}

    @app.workflow
    async def ask(run: holdfast.Run) -> list[Any]:
        got = [await run.wait_signal("go"), await run.wait_signal("go")]
        await run.wait_signal("end")
        return [*got, list(got[0])]

    await work(app)
    handle = await client.enqueue(ask.job())
    for value in (payload, None):
        await client.signal(handle.id, "go", value)
    await client.signal(handle.id, "end")
    assert await client.wait(handle.id, timeout=20) == [payload, None, ["z", "a", "ü"]]


@pytest.mark.parametrize("pack", [parcel, crate])
async def test_a_result_has_the_type_that_its_step_promises(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, pack: Any
) -> None:
    """The first time as at a replay, so that code works the same on both."""

    @app.workflow
    async def plan(run: holdfast.Run) -> float:
        packed = await run.step(pack, 1.5)
        calls.append(repr(packed))
        await run.wait_signal("go")
        return float(packed.weight)

    await work(app)
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == 1.5
    assert calls == [f"{pack.__name__.capitalize()}(weight=1.5, labels=['fragile'])"] * 2


async def test_poison_in_a_step_is_not_tried_again_and_can_be_caught(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """It is the one error that a retry policy does not concern."""

    async def hopeless() -> None:
        calls.append("try")
        msg = "no such card"
        raise holdfast.Poison(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(hopeless, max_attempts=5)
        except holdfast.Poison as error:
            return str(error)
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "no such card"
    assert calls == ["try"]


async def test_an_attempt_that_takes_too_long_goes_on_from_its_record(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lapse: Any
) -> None:
    """The timeout of a workflow is that of one attempt, and counts as a failure."""
    stuck = asyncio.Event()

    async def note(what: str) -> None:
        calls.append(what)
        if what == "slow" and calls.count("slow") == 1:
            stuck.set()
            await asyncio.Event().wait()

    @app.workflow(retry=holdfast.Constant(timedelta(milliseconds=10)))
    async def plan(run: holdfast.Run) -> None:
        await run.step(note, "quick")
        await run.step(note, "slow")

    process = await work(app)
    handle = await client.enqueue(plan.job())
    await stuck.wait()
    lapse(process)
    await client.wait(handle.id, timeout=20)
    assert calls == ["quick", "slow", "slow"]
    assert (await client.job(handle.id)).failures == 1


async def test_a_waiting_run_takes_no_room_under_a_limit(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """One that is asleep does not run: the next one may begin."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    await Operator(db.database, "ada").queues.limit("default", 1, create=True)
    await work(app)
    handles = [await client.enqueue(ask.job(), concurrency_key="k") for _ in range(3)]
    for handle in handles:
        await rests(handle.id)
    for handle in handles:
        await client.signal(handle.id, "go", handle.id)
        assert await client.wait(handle.id, timeout=20) == handle.id


async def test_pausing_twice_is_pausing_once(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """One resume lets the run go on; one that has ended can be neither paused nor resumed."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    for _ in range(2):
        await client.pause(handle.id)
    await client.signal(handle.id, "go", 1)
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == 1
    with pytest.raises(holdfast.StateConflict):
        await client.pause(handle.id)


async def test_a_branch_tells_its_result_only_when_it_has_one(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Asked too early it says how to wait; a block without branches is no wait at all."""

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        async with run.branches():
            pass
        async with run.branches() as branches:
            one = branches.start("one", run.step(echo, "done"))
            try:
                one.result()
            except holdfast.InputInvalid as error:
                early = str(error)
        return [early, one.name, one.result()]

    await work(app)
    handle = await client.enqueue(plan.job())
    early, name, done = await client.wait(handle.id, timeout=20)
    assert "branch 'main/one' goes on: await it" in early
    assert (name, done) == ("main/one", "done")


async def test_a_run_is_of_no_use_once_its_code_has_ended(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Whoever has kept it is told so."""
    kept: list[holdfast.Run] = []

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        kept.append(run)

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.wait(handle.id, timeout=20)
    with pytest.raises(holdfast.InputInvalid, match="only by the code of its own workflow"):
        kept[0].random()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_attempts": 0}, "max_attempts is 0: give a whole number"),
        ({"timeout": 0}, "timeout is 0: it must lie between 0.001 seconds"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"executor": "moon"}, "executor is 'moon': use one of loop, thread, process"),
        ({"executor": "thread"}, "an async function runs on the loop"),
        ({"name": ""}, "name is '': give a string that is not empty"),
        ({"name": "a\x00"}, "name is .*NUL character"),
        ({"name": "x" * 201}, "it has 201 characters and may have 200"),
    ],
)
async def test_options_of_a_step_are_checked_before_it_runs(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    options: dict[str, Any],
    problem: str,
) -> None:
    """An option that makes no sense is an error that names it, and nothing is recorded."""

    async def note() -> None:
        calls.append("ran")

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(note, **options)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=problem):
        await client.wait(handle.id, timeout=20)
    assert calls == []
    assert await client.history(handle.id) == []


@pytest.mark.parametrize("what", ["policy", "request", "sleep", "moment", "for ever", "workflow", "too many"])
async def test_what_a_run_asks_for_is_checked(
    client: holdfast.Client, work: Any, app: holdfast.App, what: str
) -> None:
    """Waits and children are refused with the name of what is wrong."""

    @app.job
    async def job() -> None: ...

    @app.workflow
    async def other(run: holdfast.Run) -> None: ...

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        match what:
            case "policy":
                await run.child(job.job(), policy="forget")
            case "request":
                await run.child(job)  # type: ignore[arg-type]
            case "sleep":
                await run.sleep(-1)
            case "moment":
                await run.sleep_until(run.now().replace(tzinfo=None))
            case "for ever":
                await run.sleep_until(datetime.max.replace(tzinfo=UTC))
            case "workflow":
                await run.step(other)
            case "too many":
                await run.children([job.job()] * 100_001)

    told = {
        "policy": "policy is 'forget': use cancel or abandon",
        "request": "give what the handler's .job\\(...\\) returns",
        "sleep": "time is -1: it must lie between 0 seconds",
        "moment": "give a datetime with a time zone",
        "for ever": "moment is .*: it must lie between 0 seconds and ten years",
        "workflow": "'other' wants a job of its own: start it with run.child",
        "too many": "give at most 100,000 at once",
    }
    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=told[what]):
        await client.wait(handle.id, timeout=20)
