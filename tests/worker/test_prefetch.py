"""How far ahead a worker claims: by the pace of slots that have work."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.worker import buffer, prefetch, turnover
from holdfast.worker.buffer import Buffer
from holdfast.worker.prefetch import Prefetch

PACE = 1000.0


def claimed(number: int) -> ClaimedJob:
    """A job as a claim brings it."""
    return ClaimedJob(
        number, 1, 0, "kind", "queue", 5, 5, 300.0, "{}", None, "{}", None, None, 0.0, 0.0, False
    )


class Bench:
    """Slots whose work takes as long as it is told, under a clock that only this moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slots: Any = SimpleNamespace(done=0, count=1)
        self.buffer = Buffer()

    def begin(self, most: int = 5000) -> Prefetch:
        """Measure from now on."""
        self.ahead = Prefetch(self.slots, self.buffer, most)
        return self.ahead

    def work(self, seconds: float, pace: float = PACE) -> None:
        """Have work all the time."""
        self.now += seconds
        self.slots.done += round(seconds * pace)

    def starve(self, seconds: float, slots: int = 1) -> None:
        """Let some slots wait for a job all the time."""
        waiting = [self.buffer.take() for _ in range(slots)]
        for taking in waiting:
            taking.send(None)
        self.now += seconds
        self.buffer.put([claimed(n) for n in range(slots)])
        for taking in waiting:
            with pytest.raises(StopIteration):
                taking.send(None)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose clock the modules under test go by."""
    found = Bench()
    clock = SimpleNamespace(monotonic=lambda: found.now)
    monkeypatch.setattr(prefetch, "time", clock)
    monkeypatch.setattr(buffer, "time", clock)
    return found


async def test_there_is_room_for_a_tenth_of_a_second(bench: Bench) -> None:
    """The pace rises by halves, and the room with it, up to the most."""
    one = bench.begin(most=99)
    for room in (50, 75, 87, 93, 96, 98, 99, 99):
        bench.work(0.05)
        one.measure()
        assert abs(one.room - room) <= 1


async def test_room_doubles_where_more_is_done_than_there_was_room_for(bench: Bench) -> None:
    """A worker that finds a backlog is at its pace after a few claims, however quick the first jobs are."""
    one = bench.begin(most=1000)
    rooms = list[int]()
    for _ in range(5):
        bench.work(0.001, pace=50_000 * 2 ** len(rooms))
        one.measure()
        rooms.append(one.room)
    assert rooms == [100, 200, 400, 800, 1000]


async def test_room_does_not_double_before_all_of_it_is_done(bench: Bench) -> None:
    """A part of it done in no time is a lucky moment."""
    one = bench.begin()
    bench.work(0.001, pace=50_000)
    one.measure()
    bench.work(0.001, pace=90_000)
    one.measure()
    assert one.room == 100


@pytest.mark.parametrize(("claim", "room"), [(0.01, 100), (0.03, 180), (0.5, 300)])
async def test_there_is_room_for_as_long_as_claims_take(bench: Bench, claim: float, room: int) -> None:
    """Half of it has to outlast the next one; three tenths of a second are the most."""
    one = bench.begin()
    for _ in range(20):
        bench.work(0.05)
        one.waited(claim)
        one.measure()
    assert abs(one.room - room) <= 1


async def test_the_pace_falls_at_once(bench: Bench) -> None:
    """Slow jobs after quick ones are not claimed by the pace of the quick ones."""
    one = bench.begin()
    for _ in range(10):
        bench.work(0.05)
        one.measure()
    bench.work(0.1, pace=20)
    one.measure()
    assert one.room == 2


@pytest.mark.parametrize("worked", [0.0, 0.001, 0.03])
async def test_slots_that_wait_do_not_slow_the_pace(bench: Bench, worked: float) -> None:
    """However slowly claims are answered, the next one is as large, or the worker would never catch up."""
    one = bench.begin()
    for _ in range(20):
        bench.work(0.05)
        one.measure()
    before = one.room
    for _ in range(20):
        bench.work(worked)
        bench.starve(0.04)
        one.measure()
    assert abs(one.room - before) <= 1


async def test_slots_that_work_count_though_others_wait(bench: Bench) -> None:
    """A worker that is half idle goes by what that half does, not as if it were done in no time."""
    bench.slots.count = 10
    one = bench.begin()
    for _ in range(20):
        bench.starve(1.0, slots=5)
        bench.slots.done += 50
        one.measure()
    assert one.room == 9


async def test_an_old_measurement_is_forgotten(bench: Bench) -> None:
    """After a second without work nothing is known of the jobs to come."""
    one = bench.begin()
    bench.work(0.05)
    one.measure()
    bench.starve(1.5)
    one.measure()
    assert one.room == 0


async def test_a_lucky_moment_says_little(bench: Bench) -> None:
    """A few jobs done in no time do not count as a pace of their own."""
    one = bench.begin()
    bench.starve(0.5)
    bench.work(0.001, pace=50_000)
    one.measure()
    assert one.room == 50 / turnover.SPAN * turnover.AHEAD // 2
