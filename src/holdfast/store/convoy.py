"""Enqueues that are under way at the same time travel together: one statement, one commit for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from holdfast.errors import InputInvalid
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs
from holdfast.store.database import Database
from holdfast.store.sync_database import SyncDatabase

# As with completions: while two statements are under way the next one grows, so it is as large as the load.
MOST_UNDER_WAY = 2
# What one statement carries at most: jobs, and characters of their arguments.
MOST_JOBS = 200
MOST_TEXT = 1_000_000


class Convoy:
    """Enqueues single jobs of an async client.

    Nobody waits for company: a job goes at once, and only what is asked for while two statements are under
    way goes together with the next.  Each caller gets an answer after the commit of its own job, and an
    error only for that.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[tuple[NewJob, asyncio.Future[JobHandle]]] = []
        self._under_way = 0
        self._journeys: set[asyncio.Task[Answers]] = set()

    async def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in; a key may make it wait for others or be refused, so one with a key goes alone."""
        if job.unique_key is not None or job.concurrency_key is not None:
            return await self._alone(job)
        if self._under_way < MOST_UNDER_WAY:
            self._under_way += 1
            try:
                return await self._alone(job)
            finally:
                self._under_way -= 1
                self._send()
        answer: asyncio.Future[JobHandle] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, answer))
        return await answer

    async def _alone(self, job: NewJob) -> JobHandle:
        [handle] = await self._database.run(jobs.enqueue_jobs([job]))
        return handle

    def _send(self) -> None:
        # Who has given up waiting is left out.
        waiting = [one for one in self._waiting if not one[1].done()]
        count = text = 0
        while count < min(len(waiting), MOST_JOBS) and (not count or text < MOST_TEXT):
            text += len(waiting[count][0].args)
            count += 1
        self._waiting = waiting[count:]
        if count:
            self._under_way += 1
            travellers = [job for job, _ in waiting[:count]]
            self._journeys.add(journey := asyncio.create_task(self._together(travellers)))
            journey.add_done_callback(partial(self._arrived, [answer for _, answer in waiting[:count]]))

    async def _together(self, travellers: Sequence[NewJob]) -> Answers:
        try:
            return await self._database.run(jobs.enqueue_jobs(travellers))
        except InputInvalid:
            # Nothing went in; the others need not suffer for the one with the bad value.
            return await asyncio.gather(*(self._alone(job) for job in travellers), return_exceptions=True)

    def _arrived(self, waiting: Sequence[asyncio.Future[JobHandle]], journey: asyncio.Task[Answers]) -> None:
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


class SyncConvoy:
    """The same face for the sync client, whose threads each go alone."""

    def __init__(self, database: SyncDatabase) -> None:
        self._database = database

    def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in."""
        [handle] = self._database.run(jobs.enqueue_jobs([job]))
        return handle


Answers = Sequence[JobHandle | BaseException]
