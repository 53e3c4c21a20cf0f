"""What is asked at the same time travels together: one statement, one commit for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from holdfast.errors import InputInvalid
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.store.sync_database import SyncDatabase

One = TypeVar("One")
Answer = TypeVar("Answer")

# As with completions: while two statements are under way the next one grows, so it is as large as the load.
MOST_UNDER_WAY = 2
# What one statement carries at most, by whatever its convoy weighs; and jobs.
MOST_WEIGHT = 1_000_000
MOST_JOBS = 200


class Convoy(Generic[One, Answer]):
    """Runs a statement for one, or for many where many ask at once.

    Nobody waits for company: what is asked for in one turn of the loop goes together at its end, and what is
    asked for while two statements are under way with the next, at most *most* of it and of *weigh* no more
    than a million.  Each gets an answer after the commit of its own, and an error only for that.  Who gives
    up waits *patience* seconds for what is under way for him, so that it does not happen behind his back.
    """

    def __init__(
        self,
        database: Database,
        make: Callable[[Sequence[One]], Statement[list[Answer]]],
        *,
        most: int,
        weigh: Callable[[One], int] = lambda _: 0,
        patience: float = 0.0,
    ) -> None:
        self._database, self._make = database, make
        self._most, self._weigh, self._patience = most, weigh, patience
        self._waiting: list[tuple[One, asyncio.Future[Answer]]] = []
        self._under_way = 0
        self._journeys: set[asyncio.Task[Sequence[Answer | BaseException]]] = set()

    async def ask(self, one: One) -> Answer:
        """Return the answer for *one*."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((one, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._send)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if self._patience and all(answer is not waiting for _, waiting in self._waiting):
                await asyncio.wait({answer}, timeout=self._patience)
            answer.cancel()
            raise

    async def ask_alone(self, one: One) -> Answer:
        """Return the answer for *one*, by a statement of its own."""
        [answer] = await self._database.run(self._make([one]))
        return answer

    def _send(self) -> None:
        # Who has given up waiting is left out.
        self._waiting = [one for one in self._waiting if not one[1].done()]
        while self._waiting and self._under_way < MOST_UNDER_WAY:
            count = weight = 0
            while count < min(len(self._waiting), self._most) and (not count or weight < MOST_WEIGHT):
                weight += self._weigh(self._waiting[count][0])
                count += 1
            going, self._waiting = self._waiting[:count], self._waiting[count:]
            self._under_way += 1
            self._journeys.add(journey := asyncio.create_task(self._together([one for one, _ in going])))
            journey.add_done_callback(partial(self._arrived, [answer for _, answer in going]))

    async def _together(self, travellers: Sequence[One]) -> Sequence[Answer | BaseException]:
        try:
            return await self._database.run(self._make(travellers))
        except InputInvalid:
            if len(travellers) == 1:
                raise
            # Nothing went in; the others need not suffer for the one with the bad value.
            return await asyncio.gather(*(self.ask_alone(one) for one in travellers), return_exceptions=True)

    def _arrived(
        self,
        waiting: Sequence[asyncio.Future[Answer]],
        journey: asyncio.Task[Sequence[Answer | BaseException]],
    ) -> None:
        self._under_way -= 1
        self._journeys.discard(journey)
        error = asyncio.CancelledError() if journey.cancelled() else journey.exception()
        answers = journey.result() if error is None else [error] * len(waiting)
        for future, answer in zip(waiting, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._send()


class JobConvoy:
    """Enqueues single jobs of an async client."""

    def __init__(self, database: Database) -> None:
        self._convoy: Convoy[NewJob, JobHandle] = Convoy(
            database, jobs.enqueue_jobs, most=MOST_JOBS, weigh=lambda job: len(job.args)
        )

    async def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in; a key may make it wait for others or be refused, so one with a key goes alone."""
        if job.unique_key is not None or job.concurrency_key is not None:
            return await self._convoy.ask_alone(job)
        return await self._convoy.ask(job)


class SyncJobConvoy:
    """The same face for the sync client, whose threads each go alone."""

    def __init__(self, database: SyncDatabase) -> None:
        self._database = database

    def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in."""
        [handle] = self._database.run(jobs.enqueue_jobs([job]))
        return handle
