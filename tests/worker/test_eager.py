"""A coroutine that has begun goes on as if nothing had happened."""

import asyncio
from typing import Any

import pytest

from holdfast.worker.eager import EagerCoroutine


def begun(coroutine: Any) -> EagerCoroutine:
    """Run *coroutine* to its first wait."""
    return EagerCoroutine(coroutine, coroutine.send(None))


async def test_it_gives_what_the_coroutine_returns() -> None:
    """Waits, nested awaits and the result pass through."""

    async def work() -> int:
        await asyncio.sleep(0)
        return len(await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.001)))

    assert await begun(work()) == 2


async def test_it_raises_what_the_coroutine_raises() -> None:
    """An error after the first wait comes out, with its type."""

    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await begun(work())


async def test_a_cancellation_reaches_the_coroutine_and_may_be_survived() -> None:
    """What is thrown in arrives where the coroutine waits."""

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "tidied up"
        return "never"

    async def outer() -> str:
        return str(await begun(work()))

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "tidied up"


async def test_a_timeout_around_it_ends_it() -> None:
    """The clock that starts after the first wait works like any other."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await begun(asyncio.sleep(60))


async def test_dropping_it_closes_the_coroutine() -> None:
    """Nothing is left hanging when nobody awaits it to the end."""
    closed = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    waiting = begun(work()).__await__()
    next(waiting)
    waiting.close()
    assert closed == [True]
