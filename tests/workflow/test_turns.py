"""Turns: a run that gets on may take longer than the timeout of its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))
TIMEOUT = 60.0
OUTCOMES = "select outcome, reason from holdfast.attempts where job_id = $1 order by attempt"

Spend = Callable[[float], Any]


@pytest.fixture
def workers() -> list[Any]:
    """The worker processes whose attempts age."""
    return []


@pytest.fixture
def spend(workers: list[Any]) -> Spend:
    """Has a step take so many seconds, without waiting: ``await spend(40)``."""

    async def age(seconds: float) -> None:
        (running,) = workers[-1].worker.held.running.values()
        running.began -= seconds
        if running.seconds > TIMEOUT:
            running.limit.reschedule(0.0)
            await asyncio.Event().wait()

    return age


def of_steps(app: holdfast.App, do: Any) -> holdfast.JobRequest:
    """A run of one long step after another."""

    @app.workflow(max_attempts=2, timeout=TIMEOUT, retry=SOON)
    async def plan(run: holdfast.Run) -> None:
        for n in range(4):
            await run.step(do, 40, n)

    return plan.job()


def of_naps(app: holdfast.App, do: Any) -> holdfast.JobRequest:
    """A run that asks for something again and again, in pauses that are too short to suspend it."""

    @app.workflow(max_attempts=2, timeout=TIMEOUT, retry=SOON)
    async def plan(run: holdfast.Run) -> None:
        while await run.step(do, 20, 0) < 8:
            await run.sleep(0.01)

    return plan.job()


def of_tries(app: holdfast.App, do: Any) -> holdfast.JobRequest:
    """A run whose one step is tried again and again."""

    async def attempt() -> None:
        if await do(40, 0) < 4:
            raise OSError("not yet")

    @app.workflow(max_attempts=2, timeout=TIMEOUT, retry=SOON)
    async def plan(run: holdfast.Run) -> None:
        await run.step(attempt, max_attempts=10, retry=SOON)

    return plan.job()


def of_branches(app: holdfast.App, do: Any) -> holdfast.JobRequest:
    """A run whose branches rest together."""

    @app.workflow(max_attempts=2, timeout=TIMEOUT, retry=SOON)
    async def plan(run: holdfast.Run) -> None:
        async def line(first: int) -> None:
            for n in range(4):
                await run.step(do, 20, first + n)

        async with run.branches() as branches:
            branches.start("one", line(0))
            branches.start("two", line(10))

    return plan.job()


@pytest.mark.parametrize("code", [of_steps, of_naps, of_tries, of_branches])
async def test_a_run_that_gets_on_outlives_the_timeout_of_its_attempts(
    client: holdfast.Client, work: Any, app: holdfast.App, workers: list[Any], spend: Spend, code: Any
) -> None:
    """It rests between two steps, and nothing that it did is cut off or done twice."""
    begun, ended = list[int](), list[int]()

    async def do(seconds: float, n: int) -> int:
        begun.append(n)
        await spend(seconds)
        ended.append(n)
        return len(ended)

    request = code(app, do)
    workers.append(await work(app))
    handle = await client.enqueue(request)
    await client.wait(handle.id, timeout=20)
    assert begun == ended
    job = await client.job(handle.id)
    assert (job.failures, job.attempt) == (0, 4)


async def test_what_a_run_makes_up_for_may_take_longer_than_its_timeout(
    db: ThrowawayDatabase,
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    workers: list[Any],
    spend: Spend,
) -> None:
    """It rests there too, and ends as it was to end."""
    begun = list[int]()

    async def undo(n: int) -> None:
        begun.append(n)
        await spend(40)

    @app.workflow(max_attempts=2, timeout=TIMEOUT, retry=SOON)
    async def plan(run: holdfast.Run) -> None:
        for n in range(4):
            run.on_failure(undo, n)
        raise ValueError("broken")

    workers.append(await work(app))
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="broken"):
        await client.wait(handle.id, timeout=20)
    assert begun == [3, 2, 1, 0]
    assert await db.fetch(OUTCOMES, handle.id) == [("suspended", "its next turn")] * 3


async def test_a_timeout_of_a_step_beyond_that_of_its_run_is_refused(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It could never be used up; that of a handler is passed over, for it is meant for its jobs."""

    @app.job(timeout=600)
    async def load() -> str:
        return "loaded"

    @app.workflow(timeout=TIMEOUT)
    async def plan(run: holdfast.Run, seconds: float) -> str:
        told: str = await run.step(load)
        return told + await run.step(load, timeout=seconds)

    await work(app)
    handle = await client.enqueue(plan.job(TIMEOUT))
    assert await client.wait(handle.id, timeout=20) == "loadedloaded"
    handle = await client.enqueue(plan.job(61.0))
    with pytest.raises(holdfast.JobFailed, match=r"timeout of step 'load'.*61.*60 s.*@app.workflow\(timeout"):
        await client.wait(handle.id, timeout=20)
