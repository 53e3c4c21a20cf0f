"""chancy: its executor for coroutines, 1,000 at once, polling eagerly, sending updates every 0.1 s."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from chancy import Chancy, Job, Queue, Worker

from bench.peers.load import Load
from bench.peers.protocol import Peer, Record, main


class Running:
    """chancy finds a handler by its import path; here it finds the adapter that runs in this process."""

    peer: Peer


async def job(*, number: int, pad: str) -> None:  # noqa: ARG001 - the payload is there to be carried
    """Handle one job."""
    await Running.peer.handle(number)


class ChancyPeer(Peer):
    """Its jobs stay in their table."""

    unfinished = "select exists (select from chancy_jobs where state not in ('succeeded', 'failed'))"
    clones = (("chancy_jobs", "id", "gen_random_uuid()"),)
    bulk = 10_000

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        super().__init__(dsn, load, record)
        Running.peer = self
        log = logging.getLogger("bench")
        log.setLevel(logging.ERROR)
        self.chancy = Chancy(dsn, log=log, max_connection_pool_size=load.connections(10))
        self.padding = load.padding()

    async def setup(self) -> None:
        """Migrate and declare the queue."""
        async with self.chancy:
            await self.chancy.migrate()
            await self.chancy.declare(
                Queue(
                    "default",
                    concurrency=self.load.slots or 1000,
                    executor=Chancy.Executor.Async,
                    eager_polling=True,
                )
            )

    async def open(self) -> None:
        """Open the pool."""
        await self.chancy.__aenter__()

    async def close(self) -> None:
        """Close the pool."""
        await self.chancy.__aexit__(None, None, None)

    def _job(self, number: int) -> Job:
        made = Job.from_func(job).with_kwargs(number=number, pad=self.padding)
        if self.load.delay:
            made = made.with_scheduled_at(datetime.now(UTC) + timedelta(seconds=self.load.delay))
        return made.with_priority(number % self.load.priorities)

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by push_many."""
        async for _ in self.chancy.push_many([self._job(number) for number in numbers]):
            pass

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.chancy.push(self._job(number))

    async def work(self, stop: asyncio.Event) -> None:
        """Run one worker."""
        worker = Worker(self.chancy, register_signal_handlers=False, shutdown_timeout=5)
        worker.send_outgoing_interval = 0.1
        async with worker:
            await stop.wait()


if __name__ == "__main__":
    main(ChancyPeer)
