"""procrastinate: 30 jobs at once over a psycopg pool of ten that it is handed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

from bench.peers.load import Load
from bench.peers.protocol import Peer, Record, main


class Procrastinate(Peer):
    """Its jobs stay in their table; a trigger notes every change of theirs."""

    unfinished = "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
    clones = (("procrastinate_jobs", "id", "1000000000 + n"),)
    bulk = 10_000

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        super().__init__(dsn, load, record)
        self.app = App(connector=PsycopgConnector())
        self.padding = load.padding()
        if load.kind == "sync":

            @self.app.task(name="job")
            def job(number: int, pad: str) -> None:  # noqa: ARG001 - the payload is there to be carried
                self.handle_now(number)
        else:

            @self.app.task(name="job")
            async def job(number: int, pad: str) -> None:  # noqa: ARG001
                await self.handle(number)

        self.job = job

    async def setup(self) -> None:
        """Apply its schema."""
        await self.open()
        await self.app.schema_manager.apply_schema_async()
        await self.close()

    async def open(self) -> None:
        """Open the pool."""
        size = self.load.connections(10)
        self.pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self.dsn, min_size=size, max_size=size, open=False
        )
        await self.pool.open(wait=True)
        await self.app.open_async(self.pool)

    async def close(self) -> None:
        """Close the pool."""
        await self.app.close_async()
        await self.pool.close()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by its batch call, one for each priority."""
        due = datetime.now(UTC) + timedelta(seconds=self.load.delay) if self.load.delay else None
        for priority in range(self.load.priorities):
            mine = [n for n in numbers if n % self.load.priorities == priority]
            deferrer = self.job.configure(priority=priority, schedule_at=due)
            await deferrer.batch_defer_async(*({"number": n, "pad": self.padding} for n in mine))

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.job.defer_async(number=number, pad=self.padding)

    async def work(self, stop: asyncio.Event) -> None:
        """Run one worker."""
        queues = ["default", *(f"empty {n}" for n in range(1, self.load.queues))]
        worker = asyncio.create_task(
            self.app.run_worker_async(
                queues=queues,
                concurrency=self.load.slots or (200 if self.load.kind == "ms" else 30),
                install_signal_handlers=False,
                shutdown_graceful_timeout=5,
            )
        )
        await stop.wait()
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker


if __name__ == "__main__":
    main(Procrastinate)
