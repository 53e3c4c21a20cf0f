"""What is asked for at the same time is one batch, and everybody gets an answer of their own."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.errors import InputInvalid
from holdfast.store.batcher import MAX_WEIGHT, Batcher

LATEST = 5.0


class Doubler:
    """Answers numbers with their doubles, and remembers the batches; 13 cannot be stored."""

    def __init__(self, endless: int = 0) -> None:
        self.batches: list[list[int]] = []
        self._endless, self.begun = endless, asyncio.Event()

    async def run(self, some: Sequence[int]) -> Sequence[int | Exception]:
        """Answer; the batch of number *endless* says that it has begun, and never ends."""
        self.batches.append(list(some))
        if len(self.batches) == self._endless:
            self.begun.set()
            await asyncio.Event().wait()
        if 13 in some:
            msg = "13 cannot be stored"
            raise InputInvalid(msg)
        return [LookupError(one) if one == 7 else 2 * one for one in some]


async def answers(batcher: Batcher[int, int], asked: Sequence[int]) -> list[int | BaseException]:
    """What becomes of numbers that are asked for at once."""
    async with asyncio.timeout(LATEST):
        return await asyncio.gather(*map(batcher.submit, asked), return_exceptions=True)


async def test_one_bad_value_is_found_in_few_batches() -> None:
    """It is looked for in halves, and fails for its caller alone; each of the others succeeds once."""
    doubler = Doubler()
    found = await answers(Batcher(doubler.run), asked := [*range(100, 163), 13])
    assert [type(one) for one in found if isinstance(one, BaseException)] == [InputInvalid]
    assert found[:-1] == [2 * one for one in asked[:-1]]
    assert len(doubler.batches) == 13
    went_well = [one for batch in doubler.batches if 13 not in batch for one in batch]
    assert sorted(went_well) == asked[:-1]


async def test_an_answer_that_is_an_error_is_its_callers_alone() -> None:
    """The others hear nothing of it."""
    first, second, third = await answers(Batcher(Doubler().run), [6, 7, 8])
    assert (first, type(second), third) == (12, LookupError, 16)


async def test_what_is_heavy_is_answered_in_parts() -> None:
    """A batch takes no more once it weighs so much, but always one."""
    doubler = Doubler()
    batcher: Batcher[int, int] = Batcher(doubler.run, weight=lambda one: MAX_WEIGHT // 2 if one < 4 else 0)
    assert await answers(batcher, [1, 2, 3, 4, 5]) == [2, 4, 6, 8, 10]
    assert doubler.batches == [[1, 2], [3, 4, 5]]


async def test_who_submits_right_behind_an_answer_is_heard() -> None:
    """The task has found nobody waiting by then, and has not ended yet."""
    doubler = Doubler()
    batcher: Batcher[int, int] = Batcher(doubler.run)

    async def circle(one: int) -> list[int]:
        return [await batcher.submit(one) for _ in range(20)]

    async with asyncio.timeout(LATEST):
        assert await asyncio.gather(*map(circle, range(3))) == [[0] * 20, [2] * 20, [4] * 20]
    assert len(doubler.batches) == 20


async def test_a_lone_item_is_run_without_a_task() -> None:
    """It counts as a batch in flight all the same: what is submitted meanwhile is in the next."""
    doubler = Doubler()
    go, begun = asyncio.Event(), asyncio.Event()

    async def slowly(some: Sequence[int]) -> Sequence[int | Exception]:
        begun.set()
        await go.wait()
        return await doubler.run(some)

    batcher: Batcher[int, int] = Batcher(slowly, direct=True)
    async with asyncio.timeout(LATEST):
        first = asyncio.create_task(batcher.submit(1))
        await begun.wait()
        assert not batcher._tasks
        others = [asyncio.create_task(batcher.submit(one)) for one in (7, 2, 3)]
        await asyncio.sleep(0)
        assert not batcher._tasks
        go.set()
        assert await first == 2
        assert [type(one) for one in await asyncio.gather(*others, return_exceptions=True)] == [
            LookupError,
            int,
            int,
        ]
    assert doubler.batches == [[1], [7, 2, 3]]
    with pytest.raises(LookupError):
        await batcher.submit(7)


@pytest.mark.parametrize("others", [(), (2, 3)])
async def test_a_caller_cancelled_before_the_turn_is_over_takes_nobody_along(others: tuple[int, ...]) -> None:
    """Though it was to see who else has come."""
    doubler = Doubler()
    batcher: Batcher[int, int] = Batcher(doubler.run, direct=True)
    first, *rest = [asyncio.create_task(batcher.submit(one)) for one in (1, *others)]
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(LATEST):
        assert await asyncio.gather(*rest) == [2 * one for one in others]
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await batcher.submit(4) == 8
    assert doubler.batches == ([[*others], [4]] if others else [[4]])


async def test_a_lone_caller_that_is_cancelled_keeps_nobody_waiting() -> None:
    """Another batch may be in flight again."""
    doubler = Doubler(endless=1)
    batcher: Batcher[int, int] = Batcher(doubler.run, direct=True)
    first = asyncio.create_task(batcher.submit(1))
    async with asyncio.timeout(LATEST):
        await doubler.begun.wait()
        second = asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 4


async def test_a_batch_goes_on_without_its_cancelled_caller() -> None:
    """Unless it is run directly: what was begun is worth more than a connection that is cut."""
    arrived, go, begun = list[int](), asyncio.Event(), asyncio.Event()

    async def slowly(some: Sequence[int]) -> Sequence[int]:
        begun.set()
        await go.wait()
        arrived.extend(some)
        return some

    batcher: Batcher[int, int] = Batcher(slowly)
    first = asyncio.create_task(batcher.submit(1))
    async with asyncio.timeout(LATEST):
        await begun.wait()
        first.cancel()
        go.set()
        assert await batcher.submit(2) == 2
    assert first.cancelled()
    assert arrived == [1, 2]


async def test_too_few_answers_are_an_error_for_everybody() -> None:
    """Nobody gets the answer of another one, and nobody waits for ever."""

    async def forgetful(some: Sequence[int]) -> Sequence[int]:
        return some[1:]

    batcher: Batcher[int, int] = Batcher(forgetful)
    assert [type(one) for one in await answers(batcher, [1, 2, 3])] == [ValueError] * 3


@pytest.mark.parametrize(("asked", "endless"), [((1, 2, 3, 4), 1), ((1, 2, 3, 13), 2)])
async def test_a_task_that_is_cancelled_leaves_nobody_waiting(asked: tuple[int, ...], endless: int) -> None:
    """Those in its batch are cancelled, with both halves; those that waited are in the next."""
    doubler = Doubler(endless)
    batcher: Batcher[int, int] = Batcher(doubler.run)
    submitted = [asyncio.create_task(batcher.submit(one)) for one in asked]
    async with asyncio.timeout(LATEST):
        await doubler.begun.wait()
        waits = asyncio.create_task(batcher.submit(5))
        await asyncio.sleep(0)
        [task] = batcher._tasks
        task.cancel()
        ended = await asyncio.gather(*submitted, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * len(asked)
        assert await waits == 10
