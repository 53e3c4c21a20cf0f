"""Gathers what is asked for at the same time: one statement, one commit for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from holdfast.store import failures

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Request: TypeAlias = tuple[Item, asyncio.Future[Answer]]

# The most that a batch holds: so many items, and none more once they weigh this.
MAX_ITEMS = 500
MAX_WEIGHT = 1_000_000


class Batcher(Generic[Item, Answer]):
    """Answers what many callers submit in few batches; *run* answers a batch: for each item, in order.

    Nobody waits for company: what is submitted in one turn of the loop is a batch at its end, and what is
    submitted while *max_in_flight* batches are under way is in the next, at most *max_items* of it and of
    *weight* no more than a million.  An answer that is an exception is raised for its caller alone.  A batch
    that fails because a value cannot be stored is run again in halves, so that it fails only for the caller
    of that value.  A batch goes on though its callers were cancelled.  With *direct* a lone item is run by
    its caller's own task: that spares a task, and cancelling the caller cancels the statement.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        max_items: int = MAX_ITEMS,
        max_in_flight: int = 1,
        weight: Callable[[Item], int] = lambda _: 0,
        direct: bool = False,
    ) -> None:
        self._run, self._max_items, self._max_in_flight = run, max_items, max_in_flight
        self._weight, self._direct = weight, direct
        self._waiting: list[Request[Item, Answer]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._running_directly = 0

    async def submit(self, item: Item) -> Answer:
        """Return the answer for *item*."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) == 1:
            if self._direct and self._has_room():
                return await self._lead(item, answer)
            # The task begins when this turn is over, and takes what else has come.
            self._start()
        return await answer

    async def _lead(self, item: Item, answer: asyncio.Future[Answer]) -> Answer:
        """See at the end of the turn who else has come: run *item* alone, or a batch for all of them."""
        try:
            await asyncio.sleep(0)
            if len(self._waiting) == 1 and self._waiting[0][1] is answer and self._has_room():
                self._waiting.clear()
                return await self._run_alone(item)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        finally:
            self._start()
        return await answer

    async def _run_alone(self, item: Item) -> Answer:
        self._running_directly += 1
        try:
            [answer] = await self._run([item])
        finally:
            self._running_directly -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _has_room(self) -> bool:
        return len(self._tasks) + self._running_directly < self._max_in_flight

    def _start(self) -> None:
        """Begin to run batches, if anybody waits and one more may be in flight."""
        if self._waiting and self._has_room():
            self._tasks.add(task := asyncio.create_task(self._run_batches()))
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Whoever came since it found nobody waiting could not start another.
        self._start()

    async def _run_batches(self) -> None:
        while batch := self._next():
            try:
                await self._answer(batch)
            except asyncio.CancelledError:
                for _, answer in batch:
                    answer.cancel()
                raise

    def _next(self) -> list[Request[Item, Answer]]:
        count = weight = 0
        while count < min(len(self._waiting), self._max_items) and (not count or weight < MAX_WEIGHT):
            weight += self._weight(self._waiting[count][0])
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._start()
        return batch

    async def _answer(self, batch: Sequence[Request[Item, Answer]]) -> None:
        # Whoever was cancelled while waiting is left out.
        if not (batch := [request for request in batch if not request[1].done()]):
            return
        try:
            answers = await self._run([item for item, _ in batch])
            answered = list(zip(batch, answers, strict=True))
        except Exception as error:
            if failures.may_be_of_a_value(error) and len(batch) > 1:
                # Nothing was stored; the others need not suffer for the one with the bad value.
                middle = len(batch) // 2
                await self._answer(batch[:middle])
                await self._answer(batch[middle:])
                return
            answered = [(request, error) for request in batch]
        for (_, future), answer in answered:
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
