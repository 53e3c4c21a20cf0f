"""Holdfast, by its client and its worker as `holdfast worker` puts them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import holdfast
from bench.peers.load import Load
from bench.peers.protocol import Peer, Record, main
from holdfast.app.handler import JobRequest
from holdfast.cli.serving import spare_collector
from holdfast.cli.wiring import WorkerProcess
from holdfast.client.operator import Operator
from holdfast.runtime.events import Events
from holdfast.runtime.logbook import Logbook
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.worker.config import WorkerConfig

CALLS_PER_TRANSACTION = 1000
SLEEPERS = "select id from holdfast.jobs where (args ->> 'number')::bigint = any ($1::bigint[]) order by id"
SEND = "select holdfast.send_signal(run, 'go') from unnest($1::bigint[]) run"
# How many jobs run at once: more where handlers wait, or where steps of many runs share a write.
SLOTS, WAITING_SLOTS = 50, 200


class Holdfast(Peer):
    """History and fence kept, a handler call per job."""

    unfinished = "select exists (select from holdfast.unfinished_jobs)"
    # Runs that sleep on beside those which are measured are clones, numbered as all clones are.
    asleep = "select count(*) from holdfast.live_jobs where state = 'waiting' and job_id < 1000000000"
    completed = "select count(*) from holdfast.finished_jobs where outcome = 'completed'"
    clones = (
        ("holdfast.jobs", "id", "1000000000 + n"),
        ("holdfast.finished_jobs", "job_id", "1000000000 + n"),
    )

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        super().__init__(dsn, load, record)
        self.app = holdfast.App()
        self.client = holdfast.Client(dsn, pool_size=load.connections(5))
        self.padding = load.padding()
        self._declare()

    def _declare(self) -> None:
        @self.app.job(kind="sync")
        def now(number: int, pad: str) -> None:  # noqa: ARG001 - the payload is there to be carried
            self.handle_now(number)

        @self.app.job(kind="async")
        async def asynchronous(number: int, pad: str) -> None:  # noqa: ARG001
            await self.handle(number)

        self.job = now.job if self.load.kind == "sync" else asynchronous.job
        if self.load.steps:
            self._declare_run()

    def _declare_run(self) -> None:
        load = self.load

        @self.app.workflow(kind="run")
        async def run(run: holdfast.Run, number: int, pad: str) -> None:  # noqa: ARG001
            for nth in range(load.steps):
                if load.wait and nth == load.steps - 1:
                    await wait(run)
                await run.step(self.step, number, nth)

        async def wait(run: holdfast.Run) -> None:
            if load.wait == "signal":
                await run.wait_signal("go")
            else:
                await run.sleep_until(datetime.fromtimestamp(load.wake_at, UTC))

        self.job = run.job

    async def setup(self) -> None:
        """Migrate, and set the limit that the load asks for."""
        database = Database(DatabaseConfig(dsn=self.dsn))
        await database.open()
        await migrate.migrate(database)
        if self.load.limit:
            await Operator(database, "bench").queues.limit("default", self.load.limit, create=True)
        await database.close()

    async def open(self) -> None:
        """Connect the client, and find out which runs may be sent signals."""
        await self.client.open()
        if self.load.wait == "signal":
            await self._find_sleepers()

    async def close(self) -> None:
        """Disconnect the client."""
        await self.client.close()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by enqueue_many, in one call."""
        load = self.load
        jobs: Iterable[JobRequest] = (self.job(number=number, pad=self.padding) for number in numbers)
        if load.priorities > 1:
            jobs = (
                job.with_options(priority=n % load.priorities) for n, job in zip(numbers, jobs, strict=True)
            )
        if load.keys:
            keys = [f"key {load.key(n)}" for n in numbers]
            jobs = (job.with_options(concurrency_key=key) for key, job in zip(keys, jobs, strict=True))
        await self.client.enqueue_many(jobs, delay=load.delay)

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.client.enqueue(self.job(number=number, pad=self.padding))

    async def _find_sleepers(self) -> None:
        connection = await Database(DatabaseConfig(dsn=self.dsn)).connect()
        self.sleepers = await connection.fetch(SLEEPERS, self.load.numbers())
        await connection.close()

    async def signal(self, numbers: Sequence[int]) -> None:
        """Send signals by the SQL function that is there for everybody, many in a transaction."""
        connection = await Database(DatabaseConfig(dsn=self.dsn)).connect()
        for first in range(0, len(numbers), CALLS_PER_TRANSACTION):
            ids = [row[0] for row in self.sleepers[first : first + CALLS_PER_TRANSACTION]]
            await connection.execute(SEND, ids)
        await connection.close()

    async def work(self, stop: asyncio.Event) -> None:
        """Run one worker process inside this one."""
        others = tuple(f"empty {n}" for n in range(1, self.load.queues))
        config = WorkerConfig(
            database=DatabaseConfig(dsn=self.dsn), queues=(*others, "default"), slots=self._slots()
        )
        process = WorkerProcess(self.app, config, Events(Logbook()))
        spare_collector()
        await process.start()
        await stop.wait()
        await process.stop(5.0)

    def _slots(self) -> int:
        waits = self.load.steps or self.load.kind == "ms"
        return self.load.slots or (WAITING_SLOTS if waits else SLOTS)


if __name__ == "__main__":
    main(Holdfast)
