"""Oban for Python: a queue with a limit of 1,000 over a pool of ten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from oban import Oban, worker
from oban.schema import install

from bench.peers.load import Load
from bench.peers.protocol import Peer, Record, main


class ObanPeer(Peer):
    """Its jobs stay in their table until they are pruned."""

    unfinished = (
        "select exists (select from oban_jobs where state not in ('completed', 'cancelled', 'discarded'))"
    )
    clones = (("oban_jobs", "id", "1000000000 + n"),)
    bulk = 10_000

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        super().__init__(dsn, load, record)
        handle, self.padding = self.handle, load.padding()

        @worker(queue="default")
        class Job:
            async def process(self, job: Any) -> None:
                await handle(job.args["number"])

        self.job: Any = Job

    async def setup(self) -> None:
        """Install its tables."""
        await self.open()
        await install(self.pool)
        await self.close()

    async def open(self) -> None:
        """Open the pool and a client."""
        self.pool = await Oban.create_pool(self.dsn, min_size=1, max_size=self.load.connections(10))
        self.client = Oban(pool=self.pool)

    async def close(self) -> None:
        """Close the pool."""
        await self.pool.close()

    def _job(self, number: int) -> Any:
        options: dict[str, Any] = {"priority": number % self.load.priorities}
        if self.load.delay:
            options["schedule_in"] = self.load.delay
        return self.job.new({"number": number, "pad": self.padding}, **options)

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by enqueue_many."""
        await self.client.enqueue_many(*(self._job(number) for number in numbers))

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.client.enqueue(self._job(number))

    async def work(self, stop: asyncio.Event) -> None:
        """Run one node with its queues."""
        others = {f"empty_{n}": 10 for n in range(1, self.load.queues)}
        async with Oban(pool=self.pool, queues={"default": self.load.slots or 1000, **others}):
            await stop.wait()


if __name__ == "__main__":
    main(ObanPeer)
