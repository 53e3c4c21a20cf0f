"""How slots share the turns of their loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Complete
from holdfast.runtime.events import Events
from holdfast.worker import turns
from holdfast.worker.buffer import Buffer
from holdfast.worker.perform import Performer
from holdfast.worker.permits import Permits
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held, Running
from holdfast.worker.slots import Slots

Handler = Callable[[], Awaitable[None]]
AHEAD = 100


class Stage:
    """Slots beside a buffer, without a database: handlers are called by the place of their job."""

    def __init__(self, count: int) -> None:
        self.buffer, self.handlers, self.done = Buffer(), tuple[Handler, ...](), asyncio.Event()
        self.left = 0
        permits = Permits(self.buffer, AHEAD)
        self.slots = Slots(
            count,
            cast("Performer", self),
            buffer=self.buffer,
            permits=permits,
            reporter=cast("Reporter", self),
            held=Held(),
            events=Events(),
        )

    async def perform(self, running: Running) -> Complete:
        """Stand for the performer."""
        await self.handlers[running.claimed.place]()
        return Complete()

    def report(self, *_: Any, **__: Any) -> None:
        """Stand for the reporter."""
        self.left -= 1
        if not self.left:
            self.done.set()

    async def play(self, handlers: Sequence[Handler]) -> None:
        """Run handlers in order until all have ended."""
        self.handlers, self.left = tuple(handlers), len(handlers)
        self.buffer.put(job(place) for place in range(len(handlers)))
        async with asyncio.timeout(20):
            await self.done.wait()


def job(place: int) -> ClaimedJob:
    """A job as a claim brings it."""
    return ClaimedJob(
        place, 1, 0, "kind", "queue", 5, 5, 300.0, "{}", None, "{}", None, None, 0.0, 0.0, False, place
    )


@pytest.fixture
async def stage(request: pytest.FixtureRequest) -> Any:
    """Slots that have begun to wait for jobs."""
    stage = Stage(getattr(request, "param", 4))
    await stage.slots.start()
    await asyncio.sleep(0)
    yield stage
    await stage.slots.stop()


async def begun_in_each_turn(stage: Stage, count: int, waits_at: int = 0) -> list[int]:
    """Play handlers of a millisecond, each *waits_at*-th of which then waits; answers the jobs by turn."""
    begun, seen = list[int](), [0]

    def look() -> None:
        seen.append(len(begun))
        if seen[-1] < count:
            asyncio.get_running_loop().call_soon(look)

    async def slow() -> None:
        begun.append(1)
        until = time.monotonic() + turns.LONGEST_RUN
        while time.monotonic() < until:
            pass

    async def slow_and_waits() -> None:
        await slow()
        await asyncio.sleep(0)

    look()
    await stage.play(
        [slow_and_waits if waits_at and n % waits_at == waits_at - 1 else slow for n in range(count)]
    )
    return [after - before for before, after in pairwise(seen)]


@pytest.mark.parametrize("stage", [200], indirect=True)
async def test_many_slots_whose_handlers_never_wait_let_the_loop_turn(stage: Stage) -> None:
    """Between two turns there are a millisecond and a job of each that goes on, with however many slots."""
    # In the first turn all of them have a job, for all have waited for one.
    assert sorted(set(await begun_in_each_turn(stage, 300))) == [0, 2, 200]


@pytest.mark.parametrize("stage", [200], indirect=True)
async def test_a_handler_that_waits_calls_one_other_slot_and_not_all(stage: Stage) -> None:
    """Or each turn in which one waits would be as long as one job of each."""
    first, *others = sorted(await begun_in_each_turn(stage, 600, waits_at=50), reverse=True)
    assert first == 200
    assert max(others) < 20


async def test_slots_that_rest_are_there_once_a_handler_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While handlers never wait a few slots do their work; as many run at once as there are when they do."""
    monkeypatch.setattr(turns, "LONGEST_RUN", 0.0)
    begun, meeting = list[str](), asyncio.Barrier(4)

    async def quick() -> None:
        begun.append("quick")

    async def meet() -> None:
        begun.append("meet")
        await meeting.wait()

    order = [*[quick] * 20, *[meet] * 8] * 2
    await stage.play(order)
    assert begun == [handler.__name__ for handler in order]


async def test_slots_that_rest_wait_for_jobs_once_there_are_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long slots had no work is what the pace of a worker is measured by."""
    monkeypatch.setattr(turns, "LONGEST_RUN", 0.0)

    async def quick() -> None:
        pass

    await stage.play([quick] * 20)
    for _ in range(3):
        await asyncio.sleep(0)
    now = time.monotonic()
    before = stage.buffer.hunger(now)
    assert stage.buffer.hunger(now + 1) - before == pytest.approx(4)
