"""Awa: its queue storage, 1,000 handlers at once behind two claimers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from awa import AsyncClient

from bench.peers.load import Load
from bench.peers.protocol import Peer, Record, main

# Its storage is append-only, and its view of ended jobs takes seconds to count: batches are summed up.
ENDED = "select coalesce(sum(completed_count), 0) < {} from awa.receipt_completion_batches"


@dataclass
class Payload:
    """The arguments of a job."""

    number: int
    pad: str


class Awa(Peer):
    """Its ended jobs stay in rings of partitions until those rotate."""

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        super().__init__(dsn, load, record)
        self.padding = load.padding()
        self.client: Any = AsyncClient(dsn, load.connections(10))
        self.unfinished = ENDED.format(load.first + load.jobs)

    async def setup(self) -> None:
        """Migrate to its queue storage, for which a fresh database is ready at once."""
        await self.client.migrate()
        await self.client.install_queue_storage()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by COPY, one call for each priority.

        This one goes straight into its queue storage.  `insert_many_copy`, for those who used its former
        storage, does a twenty-fifth of it; parts of 1,000 to 10,000 jobs are no faster than one call.
        """
        due = datetime.now(UTC) + timedelta(seconds=self.load.delay) if self.load.delay else None
        for part in range(self.load.priorities):
            jobs = [Payload(n, self.padding) for n in numbers if n % self.load.priorities == part]
            # It knows priorities 1 to 4, 2 is the default.
            priority = 1 + part % 4 if self.load.priorities > 1 else 2
            await self.client.enqueue_many_copy(jobs, kind="job", priority=priority, run_at=due)

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.client.insert(Payload(number, self.padding), kind="job")

    async def work(self, stop: asyncio.Event) -> None:
        """Run one worker."""

        @self.client.task(Payload, kind="job", queue="default")
        async def handler(job: Any) -> None:
            await self.handle(job.args.number)

        queue = {"name": "default", "max_workers": self.load.slots or 1000, "claimers": 2}
        await self.client.start([queue], poll_interval_ms=50)
        await stop.wait()
        await self.client.shutdown()


if __name__ == "__main__":
    main(Awa)
