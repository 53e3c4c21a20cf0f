"""Enqueues the single jobs of a client; those of an async one that come together share a commit."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database
from holdfast.store.sync_database import SyncDatabase

MAX_JOBS = 200
MAX_IN_FLIGHT = 2


class Enqueuer:
    """Enqueues single jobs of an async client, in batches where they meet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher = Batcher(
            self._enqueue_batch, max_items=MAX_JOBS, max_in_flight=MAX_IN_FLIGHT, weight=_size, direct=True
        )
        # Queues that are known to have concurrency keys.
        self._keyed = set[str]()

    async def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in; alone where a unique key, or the first key of its queue, may wait for others."""
        first_key = job.concurrency_key is not None and job.queue not in self._keyed
        if job.unique_key is None and not first_key:
            return await self._batcher.submit(job)
        [handle] = await self._enqueue_batch([job])
        if job.concurrency_key is not None:
            self._keyed.add(job.queue)
        return handle

    async def _enqueue_batch(self, batch: Sequence[NewJob]) -> Sequence[JobHandle]:
        return await self._database.run(jobs.enqueue_jobs(batch))


class SyncEnqueuer:
    """Enqueues single jobs of a sync client, each by itself."""

    def __init__(self, database: SyncDatabase) -> None:
        self._database = database

    def enqueue(self, job: NewJob) -> JobHandle:
        """Put *job* in."""
        [handle] = self._database.run(jobs.enqueue_jobs([job]))
        return handle


def _size(job: NewJob) -> int:
    """Return about how many bytes *job* adds to its batch."""
    return len(job.args)
