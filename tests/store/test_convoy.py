"""What is asked at the same time travels together, and everybody gets an answer of their own."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.errors import InputInvalid
from holdfast.store.convoy import MOST_WEIGHT, Convoy

LATEST = 5.0


class Road:
    """Carries numbers, answers their doubles, and remembers who travelled together; 13 cannot be stored."""

    def __init__(self, endless: int = 0) -> None:
        self.journeys: list[list[int]] = []
        self._endless, self.begun = endless, asyncio.Event()

    async def carry(self, some: Sequence[int]) -> Sequence[int | Exception]:
        """Answer; the journey of number *endless* says that it has begun, and never ends."""
        self.journeys.append(list(some))
        if len(self.journeys) == self._endless:
            self.begun.set()
            await asyncio.Event().wait()
        if 13 in some:
            msg = "13 cannot be stored"
            raise InputInvalid(msg)
        return [LookupError(one) if one == 7 else 2 * one for one in some]


async def answers(convoy: Convoy[int, int], asked: Sequence[int]) -> list[int | BaseException]:
    """What becomes of numbers that are asked for at once."""
    async with asyncio.timeout(LATEST):
        return await asyncio.gather(*map(convoy.ask, asked), return_exceptions=True)


async def test_one_bad_value_is_found_in_few_journeys() -> None:
    """It is looked for in halves, and fails for its asker alone; each of the others travels well once."""
    road = Road()
    found = await answers(Convoy(road.carry), asked := [*range(100, 163), 13])
    assert [type(one) for one in found if isinstance(one, BaseException)] == [InputInvalid]
    assert found[:-1] == [2 * one for one in asked[:-1]]
    assert len(road.journeys) == 13
    went_well = [one for journey in road.journeys if 13 not in journey for one in journey]
    assert sorted(went_well) == asked[:-1]


async def test_an_answer_that_is_an_error_is_its_askers_alone() -> None:
    """The others hear nothing of it."""
    first, second, third = await answers(Convoy(Road().carry), [6, 7, 8])
    assert (first, type(second), third) == (12, LookupError, 16)


async def test_what_is_heavy_travels_in_parts() -> None:
    """A journey takes no more once it has so much to carry, but always one."""
    road = Road()
    convoy: Convoy[int, int] = Convoy(road.carry, weigh=lambda one: MOST_WEIGHT // 2 if one < 4 else 0)
    assert await answers(convoy, [1, 2, 3, 4, 5]) == [2, 4, 6, 8, 10]
    assert road.journeys == [[1, 2], [3, 4, 5]]


async def test_who_asks_right_behind_an_answer_is_heard() -> None:
    """The carrier has found nobody waiting by then, and is not gone yet."""
    road = Road()
    convoy: Convoy[int, int] = Convoy(road.carry)

    async def circle(one: int) -> list[int]:
        return [await convoy.ask(one) for _ in range(20)]

    async with asyncio.timeout(LATEST):
        assert await asyncio.gather(*map(circle, range(3))) == [[0] * 20, [2] * 20, [4] * 20]
    assert len(road.journeys) == 20


async def test_who_is_alone_goes_without_a_carrier() -> None:
    """It counts as a journey all the same: whoever asks meanwhile goes with the next."""
    road = Road()
    go, begun = asyncio.Event(), asyncio.Event()

    async def slowly(some: Sequence[int]) -> Sequence[int | Exception]:
        begun.set()
        await go.wait()
        return await road.carry(some)

    convoy: Convoy[int, int] = Convoy(slowly, walks=True)
    async with asyncio.timeout(LATEST):
        first = asyncio.create_task(convoy.ask(1))
        await begun.wait()
        assert not convoy._carriers
        others = [asyncio.create_task(convoy.ask(one)) for one in (7, 2, 3)]
        await asyncio.sleep(0)
        assert not convoy._carriers
        go.set()
        assert await first == 2
        assert [type(one) for one in await asyncio.gather(*others, return_exceptions=True)] == [
            LookupError,
            int,
            int,
        ]
    assert road.journeys == [[1], [7, 2, 3]]
    with pytest.raises(LookupError):
        await convoy.ask(7)


@pytest.mark.parametrize("others", [(), (2, 3)])
async def test_who_gives_up_before_the_turn_is_over_takes_nobody_along(others: tuple[int, ...]) -> None:
    """Though it was to see who else has come."""
    road = Road()
    convoy: Convoy[int, int] = Convoy(road.carry, walks=True)
    first, *rest = [asyncio.create_task(convoy.ask(one)) for one in (1, *others)]
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(LATEST):
        assert await asyncio.gather(*rest) == [2 * one for one in others]
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await convoy.ask(4) == 8
    assert road.journeys == ([[*others], [4]] if others else [[4]])


async def test_who_is_cut_off_alone_keeps_nobody_waiting() -> None:
    """The lane is free again."""
    road = Road(endless=1)
    convoy: Convoy[int, int] = Convoy(road.carry, walks=True)
    first = asyncio.create_task(convoy.ask(1))
    async with asyncio.timeout(LATEST):
        await road.begun.wait()
        second = asyncio.create_task(convoy.ask(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 4


async def test_a_journey_goes_on_without_who_asked_for_it() -> None:
    """Unless it is one on foot: what was begun is worth more than a connection that is cut."""
    arrived, go, begun = list[int](), asyncio.Event(), asyncio.Event()

    async def slowly(some: Sequence[int]) -> Sequence[int]:
        begun.set()
        await go.wait()
        arrived.extend(some)
        return some

    convoy: Convoy[int, int] = Convoy(slowly)
    first = asyncio.create_task(convoy.ask(1))
    async with asyncio.timeout(LATEST):
        await begun.wait()
        first.cancel()
        go.set()
        assert await convoy.ask(2) == 2
    assert first.cancelled()
    assert arrived == [1, 2]


async def test_too_few_answers_are_an_error_for_everybody() -> None:
    """Nobody gets the answer of another one, and nobody waits for ever."""

    async def forgetful(some: Sequence[int]) -> Sequence[int]:
        return some[1:]

    convoy: Convoy[int, int] = Convoy(forgetful)
    assert [type(one) for one in await answers(convoy, [1, 2, 3])] == [ValueError] * 3


@pytest.mark.parametrize(("asked", "endless"), [((1, 2, 3, 4), 1), ((1, 2, 3, 13), 2)])
async def test_a_carrier_that_is_cancelled_leaves_nobody_waiting(
    asked: tuple[int, ...], endless: int
) -> None:
    """Who travelled with it is cancelled, with both halves; who waited goes with the next."""
    road = Road(endless)
    convoy: Convoy[int, int] = Convoy(road.carry)
    travellers = [asyncio.create_task(convoy.ask(one)) for one in asked]
    async with asyncio.timeout(LATEST):
        await road.begun.wait()
        waits = asyncio.create_task(convoy.ask(5))
        await asyncio.sleep(0)
        [carrier] = convoy._carriers
        carrier.cancel()
        ended = await asyncio.gather(*travellers, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * len(asked)
        assert await waits == 10
