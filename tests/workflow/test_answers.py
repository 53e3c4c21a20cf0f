"""Steps that return a `Retry`, a `Snooze` or a `Cancel`: what it means, and never a result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))
HOURS = holdfast.Constant(timedelta(hours=1))


@dataclass
class Page:
    """A result with a shape."""

    text: str


async def find(url: str) -> Page | holdfast.Retry | holdfast.Cancel:
    """A step that says all that it may return."""
    return Page(f"text of {url}")


def give_up() -> object:
    """A step that answers the same wherever it runs."""
    return holdfast.Cancel("gone for good")


def come_again() -> object:
    """A step that asks for a try which it does not get."""
    return holdfast.Retry(reason="503")


async def test_a_handler_that_asks_for_a_retry_is_tried_again(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """By its own policy, as a job of it would be; what it answered is told in the log and is no result."""

    @app.job(max_attempts=3, retry=SOON)
    async def fetch(url: str) -> object:
        calls.append(url)
        return holdfast.Retry(reason="503") if len(calls) < 3 else "the page"

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        return await run.step(fetch, "a")

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "the page"
    told = {"type": "Retry", "message": "503"}
    lines = await client.activities(handle.id)
    assert [(line.tried, line.error, line.result) for line in lines] == [
        (1, told, None),
        (2, told, None),
        (3, None, "the page"),
    ]


async def test_a_result_beside_answers_comes_as_its_type(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A function that promises a result or an answer promises that result."""

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        return (await run.step(find, "a")).text  # type: ignore[union-attr]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "text of a"


async def test_a_retry_may_say_when(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Its delay takes the place of the backoff."""

    async def fetch(delay: float) -> object:
        return holdfast.Retry(delay)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        with pytest.raises(holdfast.StepFailed):
            await run.step(fetch, 0.01, max_attempts=3, retry=HOURS)
        await run.step(fetch, 1800, name="later", max_attempts=2, retry=SOON)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "the next try of step 'later'"
    assert [line.step for line in await client.activities(handle.id)] == [*["fetch"] * 3, "later"]


@pytest.mark.parametrize("executor", ["loop", "thread", "process"])
async def test_an_answer_that_ends_a_step_fails_it_with_its_reason(
    client: holdfast.Client, work: Any, app: holdfast.App, executor: str
) -> None:
    """A cancel at once, a retry where the tries are used up; a replay meets the same."""

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        met = []
        for function, tries in ((give_up, 5), (come_again, 1)):
            try:
                await run.step(function, executor=executor, max_attempts=tries)
            except holdfast.StepFailed as error:
                met.append(f"{error.kind} {error.problem} | {error}")
        await run.wait_signal("go")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == [
        "Cancel gone for good | step 'give_up' failed: Cancel: gone for good",
        "Retry 503 | step 'come_again' failed: Retry: 503",
    ]
    assert [line.tried for line in await client.activities(handle.id)] == [1, 1]
    states = [one.state for one in await client.history(handle.id) if one.kind == "step"]
    assert states == ["failed", "failed"]


async def test_a_snooze_of_a_step_counts_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, calls: list[str], db: ThrowawayDatabase
) -> None:
    """Neither in one attempt nor over a suspension: after it there are as many tries left as before."""

    @app.job(max_attempts=2, retry=SOON)
    async def poll() -> object:
        calls.append("poll")
        match len(calls):
            case 1 | 2:
                return holdfast.Snooze(0.01, "not yet")
            case 3:
                return holdfast.Snooze(timedelta(hours=1), "come in an hour")
            case 4:
                return holdfast.Retry(reason="503")
        return len(calls)

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        return await run.step(poll)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "the next try of step 'poll'"
    (step,) = await client.history(handle.id)
    assert (step.state, step.error) == ("retrying", {"type": "Snooze", "message": "come in an hour"})
    assert await db.value("select wake_at > holdfast.now() + interval '59 minutes' from holdfast.steps")
    await db.fetch("update holdfast.steps set wake_at = holdfast.now()")
    await db.fetch("update holdfast.live_jobs set run_at = holdfast.now()")
    await db.value("select pg_notify('holdfast', 'stage')")
    assert await client.wait(handle.id, timeout=20) == 5
    assert [line.tried for line in await client.activities(handle.id)] == [1, 2, 3, 4, 5]


async def test_an_answer_undoes_what_its_step_wrote(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], db: ThrowawayDatabase
) -> None:
    """A step in a transaction has not happened where it wants to be tried again."""
    table = f'"{db.schema}".orders'
    await db.fetch("create table holdfast.orders (id integer primary key)")

    async def store(connection: asyncpg.Connection[Any]) -> object:
        await connection.execute(f"insert into {table} values (1)")  # noqa: S608 - the test's own table
        calls.append("store")
        return holdfast.Snooze(0.01) if len(calls) == 1 else "stored"

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        return await run.step(store, transaction=True)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "stored"
    assert calls == ["store", "store"]


async def test_an_answer_that_makes_no_sense_is_named(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """Trying again would not mend it."""

    async def poll() -> object:
        calls.append("poll")
        return holdfast.Snooze(-1)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(poll, max_attempts=5)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=r"OptionInvalid: Snooze\.delay is -1"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["poll"]


async def test_a_run_that_is_cancelled_for_what_is_no_reason_fails_at_once(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """As a handler does: to try it again would answer the same."""

    @app.workflow(max_attempts=3, retry=SOON)
    async def plan(run: holdfast.Run) -> Any:  # noqa: ARG001 - a run without a step
        return holdfast.Cancel(5)  # type: ignore[arg-type]

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=r"Cancel\.reason .*give a string"):
        await client.wait(handle.id, timeout=20)
    assert (await client.job(handle.id)).attempt == 1
