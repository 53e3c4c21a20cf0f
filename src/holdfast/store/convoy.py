"""What is asked at the same time travels together: one statement, one commit for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from holdfast.model.job import JobHandle, NewJob
from holdfast.store import failures, jobs
from holdfast.store.database import Database
from holdfast.store.sync_database import SyncDatabase

One = TypeVar("One")
Answer = TypeVar("Answer")

# What travels together at most: so many, and no more than so much of what a convoy weighs.
MOST_TOGETHER = 500
MOST_WEIGHT = 1_000_000
MOST_JOBS = 200
JOB_LANES = 2


class Convoy(Generic[One, Answer]):
    """Carries what many ask for in few journeys; *carry* answers one for each, in order.

    Nobody waits for company: what is asked for in one turn of the loop goes together at its end, and what is
    asked for while *lanes* journeys are under way with the next, at most *most* of it and of *weigh* no more
    than a million.  An answer that is an exception is raised for its asker alone.  A journey that fails
    because a value cannot be stored is made again in halves, so that it fails only for who brought the value.
    A carrier goes on though whoever asked has given up.  In one that *walks*, who is alone at the end of the
    turn goes without: that spares a task, and the journey is cut off with who makes it.
    """

    def __init__(
        self,
        carry: Callable[[Sequence[One]], Awaitable[Sequence[Answer | Exception]]],
        *,
        most: int = MOST_TOGETHER,
        lanes: int = 1,
        weigh: Callable[[One], int] = lambda _: 0,
        walks: bool = False,
    ) -> None:
        self._carry, self._most, self._lanes, self._weigh = carry, most, lanes, weigh
        self._walks = walks
        self._waiting: list[tuple[One, asyncio.Future[Answer]]] = []
        self._carriers: set[asyncio.Task[None]] = set()
        self._on_foot = 0

    async def ask(self, one: One) -> Answer:
        """Return the answer for *one*."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if len(self._waiting) == 1:
            if self._walks and self._has_lane():
                return await self._set_out(one, answer)
            # A carrier comes when this turn is over, and takes along who else has come.
            self._call_carrier()
        return await answer

    async def _set_out(self, one: One, answer: asyncio.Future[Answer]) -> Answer:
        """See at the end of the turn who has come: walk alone, or call a carrier for all of them."""
        try:
            await asyncio.sleep(0)
            if len(self._waiting) == 1 and self._waiting[0][1] is answer and self._has_lane():
                self._waiting.clear()
                return await self._walk(one)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        finally:
            self._call_carrier()
        return await answer

    async def _walk(self, one: One) -> Answer:
        self._on_foot += 1
        try:
            [answer] = await self._carry([one])
        finally:
            self._on_foot -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _has_lane(self) -> bool:
        return len(self._carriers) + self._on_foot < self._lanes

    def _call_carrier(self) -> None:
        if self._waiting and self._has_lane():
            self._carriers.add(carrier := asyncio.create_task(self._go()))
            carrier.add_done_callback(self._back)

    def _back(self, carrier: asyncio.Task[None]) -> None:
        self._carriers.discard(carrier)
        # Whoever asked since it found nobody waiting has called in vain.
        self._call_carrier()

    async def _go(self) -> None:
        while going := self._next():
            try:
                await self._travel(going)
            except asyncio.CancelledError:
                for _, asked in going:
                    asked.cancel()
                raise

    def _next(self) -> list[tuple[One, asyncio.Future[Answer]]]:
        count = weight = 0
        while count < min(len(self._waiting), self._most) and (not count or weight < MOST_WEIGHT):
            weight += self._weigh(self._waiting[count][0])
            count += 1
        going, self._waiting = self._waiting[:count], self._waiting[count:]
        self._call_carrier()
        return going

    async def _travel(self, going: Sequence[tuple[One, asyncio.Future[Answer]]]) -> None:
        # Who has given up waiting is left out.
        if not (going := [one for one in going if not one[1].done()]):
            return
        try:
            answers = await self._carry([one for one, _ in going])
            told = list(zip(going, answers, strict=True))
        except Exception as error:
            if failures.may_be_of_a_value(error) and len(going) > 1:
                # Nothing was stored; the others need not suffer for the one with the bad value.
                middle = len(going) // 2
                await self._travel(going[:middle])
                await self._travel(going[middle:])
                return
            told = [(one, error) for one in going]
        for (_, asked), answer in told:
            if asked.done():
                continue
            if isinstance(answer, Exception):
                asked.set_exception(answer)
            else:
                asked.set_result(answer)


def _length(job: NewJob) -> int:
    return len(job.args)


class JobConvoy:
    """Enqueues single jobs of an async client."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._convoy = Convoy(self._carry, most=MOST_JOBS, lanes=JOB_LANES, weigh=_length, walks=True)
        # Queues that are known to have concurrency keys.
        self._keyed = set[str]()

    async def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in; alone where a unique key, or the first key of its queue, may wait for others."""
        first_key = job.concurrency_key is not None and job.queue not in self._keyed
        if job.unique_key is None and not first_key:
            return await self._convoy.ask(job)
        [handle] = await self._carry([job])
        if job.concurrency_key is not None:
            self._keyed.add(job.queue)
        return handle

    async def _carry(self, some: Sequence[NewJob]) -> Sequence[JobHandle]:
        return await self._database.run(jobs.enqueue_jobs(some))


class SyncJobConvoy:
    """The same face for the sync client, whose threads each go alone."""

    def __init__(self, database: SyncDatabase) -> None:
        self._database = database

    def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in."""
        [handle] = self._database.run(jobs.enqueue_jobs([job]))
        return handle
