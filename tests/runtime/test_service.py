"""What runs takes turns and rests between them, and whoever wakes it is heard whenever that is."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.testing import Probe


class Turns(Service):
    """Notes its turns, and rests for as long as it is told; *during* is called in each of them."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(Events(probe))
        self.taken: asyncio.Queue[int] = asyncio.Queue()
        self.count, self.rest = 0, math.inf
        self.during: Callable[[], object] = lambda: None

    async def turn(self) -> float:
        """Note it."""
        self.count += 1
        self.taken.put_nowait(self.count)
        self.during()
        return self.rest

    async def took(self, nth: int) -> None:
        """Wait for a turn."""
        async with asyncio.timeout(20):
            while await self.taken.get() != nth:
                pass


@pytest.fixture
async def turns(probe: Probe) -> AsyncIterator[Turns]:
    """A service that is stopped at the end."""
    service = Turns(probe)
    yield service
    await service.stop()


@pytest.mark.parametrize("rest", [math.inf, 3600.0])
async def test_a_rest_is_cut_short_by_whoever_wakes_it(turns: Turns, rest: float) -> None:
    """Each time, however long it would be."""
    turns.rest = rest
    await turns.start()
    for nth in range(1, 4):
        await turns.took(nth)
        # The turn is over, and the rest has begun.
        await asyncio.sleep(0)
        assert turns.count == nth
        turns.wake()
    await turns.took(4)


async def test_who_is_woken_during_a_turn_takes_the_next_one_at_once(turns: Turns) -> None:
    """What it was woken for may have come after it had looked."""

    def wake_once() -> None:
        if turns.count == 1:
            turns.wake()

    turns.during = wake_once
    await turns.start()
    await turns.took(2)
    await asyncio.sleep(0)
    assert turns.count == 2


async def test_a_rest_ends_by_itself(turns: Turns) -> None:
    """After as many seconds as the turn has said."""
    turns.rest = 0.05
    begun = asyncio.get_running_loop().time()
    await turns.start()
    await turns.took(3)
    assert asyncio.get_running_loop().time() - begun >= 0.09


async def test_a_wake_up_for_a_turn_that_failed_does_not_spare_it_the_pause(
    turns: Turns, probe: Probe
) -> None:
    """Or what fails and wakes itself would fail without end."""

    def fail() -> None:
        if turns.count == 1:
            turns.wake()
            raise OSError("not now")

    turns.during = fail
    begun = asyncio.get_running_loop().time()
    await turns.start()
    await turns.took(2)
    assert asyncio.get_running_loop().time() - begun >= 0.08
    assert [event["failures"] for event in probe.seen("service.failed")] == [1]


async def test_who_was_stopped_while_it_rested_can_be_woken_and_started_again(turns: Turns) -> None:
    """A wake-up that comes in between is no error."""
    await turns.start()
    await turns.took(1)
    await asyncio.sleep(0)
    await turns.stop()
    turns.wake()
    await turns.start()
    await turns.took(2)
    turns.wake()
    await turns.took(3)


async def test_who_is_cancelled_while_it_stops_a_service_is_cancelled(turns: Turns) -> None:
    """A time limit around a stop holds, though the turn that is stopped takes longer."""
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def turn() -> float:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()
        return 0.0

    turns.turn = turn  # type: ignore[method-assign]
    await turns.start()
    await asyncio.sleep(0)
    stopping = asyncio.create_task(turns.stop())
    await cleaning.wait()
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    cleaned.set()
