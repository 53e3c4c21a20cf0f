"""DBOS: 500 workflows at once, polled for every 50 ms, over 16 connections and 16 threads of its executor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient, SendMessage

from bench.peers.protocol import Peer, main

CONNECTIONS = 16
# Without a bound it has a thread for each workflow that it writes about, up to 250 of them, and is no faster.
THREADS = 16
CONCURRENCY = 500
CALLS_PER_TRANSACTION = 1000


class DbosPeer(Peer):
    """Each job is a workflow; its status stays in the system tables."""

    unfinished = (
        "select exists (select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', 'DELAYED'))"
    )
    clones = (("dbos.workflow_status", "workflow_uuid", "gen_random_uuid()::text"),)
    # It keeps a run that waits in memory; that it has got there shows in its first step.
    asleep = "select count(distinct workflow_uuid) from dbos.operation_outputs"
    completed = "select count(*) from dbos.workflow_status where status = 'SUCCESS'"
    bulk = CALLS_PER_TRANSACTION

    @property
    def url(self) -> str:
        """The address as SQLAlchemy wants it."""
        return self.dsn.replace("postgresql://", "postgresql+psycopg://")

    def _launch(self) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "sys_db_pool_size": CONNECTIONS,
                "max_executor_threads": THREADS,
                "application_version": "bench",
                "executor_id": "bench",
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )

        if self.load.steps:
            self._declare_run()
        elif self.load.kind == "sync":

            @DBOS.workflow(name="job")
            def job(number: int, pad: str) -> None:  # noqa: ARG001 - the payload is there to be carried
                self.handle_now(number)
        else:

            @DBOS.workflow(name="job")
            async def job(number: int, pad: str) -> None:  # noqa: ARG001
                await self.handle(number)

        DBOS.launch()
        poll = 0.01 if self.load.latency else 0.05
        DBOS.register_queue(
            "default",
            worker_concurrency=self.load.slots or self._concurrency(),
            polling_interval_sec=poll,
            on_conflict="always_update",
        )

    def _declare_run(self) -> None:
        load = self.load

        @DBOS.workflow(name="job")
        async def run(number: int, pad: str) -> None:  # noqa: ARG001
            for nth in range(load.steps):
                if load.wait and nth == load.steps - 1:
                    await wait()
                await DBOS.run_step_async({"name": "step"}, self.step, number, nth)

        async def wait() -> None:
            if load.wait == "signal":
                await DBOS.recv_async("go", timeout_seconds=3600)
            else:
                await DBOS.sleep_async(max(0.0, load.wake_at - time.time()))

    def _concurrency(self) -> int:
        # A run that waits takes up a place.
        return max(CONCURRENCY, self.load.jobs if self.load.wait else 0)

    async def setup(self) -> None:
        """Launch once: that migrates."""
        await asyncio.to_thread(self._launch)

    async def open(self) -> None:
        """Connect the client."""
        logging.getLogger("dbos").setLevel(logging.ERROR)
        self.padding = self.load.padding()
        size = self.load.connections(CONNECTIONS)
        self.client: Any = DBOSClient(system_database_url=self.url, system_database_pool_size=size)
        # Its own call in the background shares six threads with every other client of the process.
        self.threads = ThreadPoolExecutor(size)
        self.engine = sqlalchemy.create_engine(self.url, pool_size=CONNECTIONS)

    def _options(self, number: int) -> dict[str, Any]:
        options = {"queue_name": "default", "workflow_name": "job", "app_version": "bench"}
        return options | {"workflow_id": f"run {number}"} if self.load.wait else options

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by single calls in one transaction."""
        await asyncio.to_thread(self._enqueue, numbers)

    def _enqueue(self, numbers: Sequence[int]) -> None:
        with self.engine.begin() as connection:
            for number in numbers:
                self.client.enqueue_in_transaction(connection, self._options(number), number, self.padding)

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        enqueue = partial(self.client.enqueue, self._options(number), number, self.padding)
        await asyncio.get_running_loop().run_in_executor(self.threads, enqueue)

    async def signal(self, numbers: Sequence[int]) -> None:
        """Send messages, many in a transaction."""
        await self.client.send_bulk_async([SendMessage(f"run {number}", None, "go") for number in numbers])

    async def work(self, stop: asyncio.Event) -> None:
        """Run one executor."""
        await asyncio.to_thread(self._launch)
        await stop.wait()
        await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    main(DbosPeer)
