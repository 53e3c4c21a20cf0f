"""A short trial of one database: how fast jobs get in, get done, and begin."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from holdfast.app.registry import App
from holdfast.cli.wiring import WorkerProcess
from holdfast.client.asynchronous import Client
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.worker.config import WorkerConfig

CLIENTS = 8
PROBES = 200
GAP = 0.02
SLOTS = 50
PADDING = "x" * 50
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured."""

    name: str
    value: float
    unit: str


@asynccontextmanager
async def throwaway_schema(config: DatabaseConfig) -> AsyncIterator[DatabaseConfig]:
    """Make a migrated schema with a name of its own, and drop it in the end."""
    own = replace(config, schema=f"holdfast_bench_{secrets.token_hex(6)}", pool_size=CLIENTS + 2)
    database = Database(own)
    await database.open()
    try:
        await migrate.migrate(database)
        yield own
    finally:
        try:
            await migrate.drop(database)
        finally:
            await database.close()


class Trial:
    """Measures one database through the client and a worker in this process."""

    def __init__(self, config: DatabaseConfig, jobs: int, tell: Callable[[str], None]) -> None:
        self._config, self._jobs, self._tell = config, jobs, tell
        self._began: dict[int, float] = {}
        self._all_began = asyncio.Event()
        self._awaited = jobs
        self._app = App()
        self._job = self._app.job(kind="bench")(self._handle)
        self._client = Client(config.dsn, schema=config.schema, pool_size=CLIENTS, pgbouncer=config.pgbouncer)

    async def _handle(self, number: int, pad: str) -> None:  # noqa: ARG002 - carried, as payloads are
        self._began[number] = time.perf_counter()
        if len(self._began) == self._awaited:
            self._all_began.set()

    async def run(self) -> list[Figure]:
        """Measure everything, in about half a minute where the database is near."""
        async with self._client:
            figures = [await self._bulk(), await self._singles()]
            figures.append(await self._drain())
            return figures + await self._latencies()

    async def _bulk(self) -> Figure:
        self._tell(f"enqueueing {self._jobs:,} jobs at once")
        began = time.perf_counter()
        await self._client.enqueue_many([self._job.job(n, PADDING) for n in range(self._jobs)])
        return Figure("bulk enqueue", self._jobs / (time.perf_counter() - began), "jobs/s")

    async def _singles(self) -> Figure:
        """Enqueue one by one what makes up a twentieth more."""
        count = max(CLIENTS, self._jobs // 20)
        self._tell(f"enqueueing {count:,} jobs one by one from {CLIENTS} clients")
        numbers = iter(range(self._jobs, self._jobs + count))

        async def client() -> None:
            for number in numbers:
                await self._client.enqueue(self._job.job(number, PADDING))

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        self._awaited += count
        return Figure(f"single enqueues, {CLIENTS} clients", count / (time.perf_counter() - began), "jobs/s")

    async def _drain(self) -> Figure:
        self._tell(f"draining {self._awaited:,} jobs with one worker process")
        async with self._working() as process:
            await self._all_began.wait()
            await process.worker.held.wait_empty()
            ended = time.perf_counter()
        return Figure("drain, 1 process", self._awaited / (ended - min(self._began.values())), "jobs/s")

    async def _latencies(self) -> list[Figure]:
        self._tell(f"watching {PROBES} jobs from commit to handler")
        self._began.clear()
        self._all_began.clear()
        self._awaited = PROBES
        committed = []
        async with self._working():
            for number in range(PROBES):
                await asyncio.sleep(GAP)
                await self._client.enqueue(self._job.job(number, PADDING))
                committed.append(time.perf_counter())
            await self._all_began.wait()
        waits = sorted(max(0.0, self._began[n] - moment) * 1000 for n, moment in enumerate(committed))
        return [
            Figure(f"commit to handler, p{share}", waits[-(-share * PROBES // 100) - 1], "ms")
            for share in PERCENTILES
        ]

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[WorkerProcess]:
        process = WorkerProcess(
            self._app, WorkerConfig(database=self._config, queues=("default",), slots=SLOTS)
        )
        await process.start()
        try:
            yield process
        finally:
            await process.stop(5.0)
