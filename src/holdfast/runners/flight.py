"""Many small requests as few statements: what comes while one is under way goes with the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import InputInvalid

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_AT_ONCE = 500


class Flight(Generic[Item, Answer]):
    """Gathers items and flies them together; *fly* answers one for each, in order.

    An answer that is an exception is raised for its item alone.  A flight that fails because a value cannot
    be stored is flown again one by one, so that it fails only for the item that brought the value.
    """

    def __init__(self, fly: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self._fly = fly
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def join(self, item: Item) -> Answer:
        """Return the answer for *item*."""
        place: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, place))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await place

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            # Whoever has hung up meanwhile wants nothing any more.
            batch = [one for one in batch if not one[1].done()]
            if batch:
                await self._carry(batch)

    async def _carry(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        flight = asyncio.gather(self._fly([item for item, _ in batch]), return_exceptions=True)
        [result] = await flight
        failure = result if isinstance(result, BaseException) else None
        if isinstance(failure, InputInvalid) and len(batch) > 1:
            for one in batch:
                await self._carry([one])
            return
        answers = [result] * len(batch) if isinstance(result, BaseException) else result
        for (_, place), answer in zip(batch, answers, strict=True):
            if place.done():
                continue
            if isinstance(answer, BaseException):
                place.set_exception(answer)
            else:
                place.set_result(answer)
