"""Waits for the ends of many jobs by one statement at a time, however many wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from holdfast.errors import JobNotFound
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import jobs
from holdfast.store.database import Database
from holdfast.store.jobs import JobEnd

LOOK_EVERY = 0.1
IDLE = 60.0


class Watch(Service):
    """Looks ten times a second which of the awaited jobs still live; while nobody waits it asks nothing."""

    name = "watch"

    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(events)
        self._database = database
        self._awaited: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._released = False

    async def wait(self, job_id: int, timeout: float) -> JobEnd:
        """Return how a job stands once it has ended or after *timeout* seconds; raises `JobNotFound`."""
        gone = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + timeout
        self._awaited[job_id].add(gone)
        is_over = False
        try:
            while True:
                gone.clear()
                end = await self._database.run(jobs.job_end(job_id))
                if end is None:
                    raise JobNotFound(job_id)
                if end.state.is_final or is_over or self._released:
                    return end
                self.wake()
                try:
                    async with asyncio.timeout_at(deadline):
                        await gone.wait()
                except TimeoutError:
                    # It may stand otherwise by now: one look more.
                    is_over = True
        finally:
            self._awaited[job_id].discard(gone)
            if not self._awaited[job_id]:
                del self._awaited[job_id]

    def waiters(self, job_id: int) -> int:
        """Return how many wait for a job now."""
        return len(self._awaited.get(job_id, ()))

    def release(self) -> None:
        """Let everybody who waits have what they know now: the service stops."""
        self._released = True
        for waiters in self._awaited.values():
            for gone in waiters:
                gone.set()

    async def turn(self) -> float:
        """Look once; wake whoever waits for a job that has left."""
        awaited = list(self._awaited)
        if not awaited:
            return IDLE
        living = await self._database.run(jobs.living_jobs(awaited))
        for job_id in set(awaited).difference(living):
            for gone in self._awaited.get(job_id, ()):
                gone.set()
        return LOOK_EVERY
