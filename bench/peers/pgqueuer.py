"""PgQueuer: a queue manager with batches of 1,000 over a pool of five connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.protocol import Peer, main


class Pgqueuer(Peer):
    """Its queue table empties; every change of a job goes to its log."""

    unfinished = "select exists (select from pgqueuer where status in ('queued', 'picked'))"
    clones = (("pgqueuer_log", "id", "1000000000 + n"),)

    async def setup(self) -> None:
        """Install its tables."""
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self) -> None:
        """Open the pool."""
        size = self.load.connections(5)
        self.pool = await asyncpg.create_pool(self.dsn, min_size=size, max_size=size)
        self.driver = AsyncpgPoolDriver(self.pool)
        self.queries = Queries(self.driver)
        self.due_in = timedelta(seconds=self.load.delay)
        self.padding = self.load.padding()

    async def close(self) -> None:
        """Close the pool."""
        await self.pool.close()

    def _payload(self, number: int) -> bytes:
        return json.dumps({"number": number, "pad": self.padding}).encode()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by one call with lists."""
        count, priorities = len(numbers), self.load.priorities
        await self.queries.enqueue(
            ["job"] * count,
            [self._payload(number) for number in numbers],
            [number % priorities for number in numbers],
            [self.due_in] * count,
        )

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.queries.enqueue("job", self._payload(number))

    async def work(self, stop: asyncio.Event) -> None:
        """Run one queue manager."""
        manager = PgQueuer(self.driver)

        @manager.entrypoint("job")
        async def asynchronous(job: Job) -> None:
            await self.handle(json.loads(job.payload or b"")["number"])

        for n in range(1, self.load.queues):
            manager.entrypoint(f"empty {n}")(self._never)

        running = asyncio.create_task(manager.run(batch_size=self.load.slots or 1000))
        await stop.wait()
        manager.shutdown.set()
        await asyncio.wait([running], timeout=10)

    async def _never(self, _job: Job) -> None:
        """Stand for the entrypoints that get nothing."""


if __name__ == "__main__":
    main(Pgqueuer)
