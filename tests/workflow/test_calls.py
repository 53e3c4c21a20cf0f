"""Calls of steps: what may be called, and how often in a worker that lives long."""

import asyncio
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import Executor
from holdfast.workflow.calls import made_call


def made_inside() -> Callable[[], int]:
    """A function as the code of each run makes one."""

    def weigh() -> int:
        return 7

    return weigh


def test_functions_that_runs_make_are_forgotten() -> None:
    """Each run has its own, and a worker that kept them would grow with every run."""
    functions = [made_inside() for _ in range(2000)]
    kept = [weakref.ref(function) for function in functions]
    for function in functions:
        assert made_call(function, (), {}).result("7") == 7
    functions.clear()
    del function
    gc.collect()
    assert not any(one() is not None for one in kept)


async def double(n: int) -> int:
    """An async function."""
    await asyncio.sleep(0)
    return 2 * n


def halve(n: int) -> int:
    """A sync function."""
    return n // 2


@functools.wraps(halve)
async def halve_here(n: int) -> int:
    """Async itself, whatever it wraps."""
    await asyncio.sleep(0)
    return halve(n)


@functools.wraps(double)
def double_there(n: int) -> Any:
    """Sync itself, and gives what is to be awaited."""
    return double(n)


@functools.wraps(double)
def double_alone(n: int) -> int:
    """Has a loop of its own, as it may where no other one runs."""
    return asyncio.run(double(n))


class Tripling:
    """An object that is called with await."""

    async def __call__(self, n: int) -> int:
        """Triple *n*."""
        await asyncio.sleep(0)
        return 3 * n


async def test_whatever_can_be_called_is_a_step(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Async by a wrapper, behind one, in an object, a partial or a lambda: it is awaited on the loop."""

    @app.workflow
    async def plan(run: holdfast.Run) -> list[int]:
        return [
            await run.step(halve_here, 8),
            await run.step(double_there, 8),
            await run.step(double_alone, 8, executor="thread"),
            await run.step(Tripling(), 8, name="triple"),
            await run.step(functools.partial(Tripling(), 8), name="triple later"),
            await run.step(functools.partial(double, 8), name="double later"),
            await run.step(lambda: double(8), name="double"),
        ]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [4, 16, 16, 24, 24, 16, 16]


async def test_what_a_thread_gives_to_be_awaited_is_stopped_in_time(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """The timeout is the step's, not that of its thread."""

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            await run.step(lambda: asyncio.Event().wait(), name="stuck", timeout=0.05)
        except TimeoutError as error:
            return str(error)
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "step 'stuck' took longer than 0.05 s"


def test_an_async_object_is_an_async_handler(app: holdfast.App) -> None:
    """Handlers and steps are asked in one way whether they are async."""
    tripling = functools.update_wrapper(Tripling(), halve)
    assert app.job(tripling).executor is Executor.LOOP
    with pytest.raises(holdfast.OptionInvalid, match="an async function runs on the loop"):
        made_call(tripling, (8,), {"executor": "thread"})
