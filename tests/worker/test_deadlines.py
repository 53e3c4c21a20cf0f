"""Timeouts of handlers share a timer, and each of them is kept."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from holdfast.worker.deadlines import Deadlines


async def kept(deadlines: Deadlines, seconds: float) -> bool:
    """Wait under a deadline until it ends the wait."""
    limit = asyncio.timeout(None)
    try:
        async with limit:
            deadlines.watch(limit, seconds)
            await asyncio.Event().wait()
    except TimeoutError:
        return limit.expired()
    finally:
        deadlines.forget(limit)
    return False


@pytest.mark.parametrize("order", [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1), (0.1, 0.1, 0.0)])
async def test_every_deadline_ends_what_it_is_for(order: tuple[float, ...]) -> None:
    """In whatever order they are set, and those first that are due first."""
    deadlines, ended = Deadlines(), list[float]()

    async def one(seconds: float) -> None:
        # On a full machine the next one may be set so late that it is due later.
        due = asyncio.get_running_loop().time() + seconds
        assert await kept(deadlines, seconds)
        ended.append(due)

    async with asyncio.timeout(20):
        await asyncio.gather(*map(one, order))
    assert ended == sorted(ended)
    assert len(ended) == len(order)


async def test_what_is_forgotten_is_left_alone() -> None:
    """A handler that has ended in time hears nothing of its deadline; the others are ended in theirs."""
    deadlines, early = Deadlines(), asyncio.timeout(None)
    async with early:
        deadlines.watch(early, 0.01)
        deadlines.forget(early)
        assert await kept(deadlines, 0.02)
    assert not early.expired()


async def test_a_deadline_that_is_renewed_is_kept_from_then_on() -> None:
    """As often as it is, and also where the timer was set for an earlier moment."""
    deadlines, limit, loop = Deadlines(), asyncio.timeout(None), asyncio.get_running_loop()
    begun = loop.time()
    with suppress(TimeoutError):
        async with limit:
            deadlines.watch(limit, 0.05)
            for _ in range(3):
                deadlines.renew(limit, 0.2)
                await asyncio.sleep(0)
            await asyncio.Event().wait()
    assert limit.expired()
    assert loop.time() - begun >= 0.2


async def test_what_has_ended_is_not_renewed() -> None:
    """Neither one that is over, for to end it again would be an error, nor one that was forgotten."""
    deadlines, over, early = Deadlines(), asyncio.timeout(None), asyncio.timeout(None)
    with suppress(TimeoutError):
        async with over:
            deadlines.watch(over, 0.01)
            await asyncio.Event().wait()
    async with asyncio.timeout(20), early:
        deadlines.watch(early, 0.01)
        deadlines.forget(early)
        for limit in (over, early):
            deadlines.renew(limit, 0.01)
        assert await kept(deadlines, 0.05)
    assert not early.expired()


async def test_handlers_with_the_same_timeout_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them, one after the other, set one timer."""
    loop, set_for = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        set_for.append(when)
        return call_at(when, *args, **options)

    monkeypatch.setattr(loop, "call_at", counted)
    deadlines = Deadlines()
    for _ in range(1000):
        async with asyncio.timeout(None) as limit:
            deadlines.watch(limit, 300.0)
            await asyncio.sleep(0)
            deadlines.forget(limit)
    assert len(set_for) == 1
