"""DBOS: 500 workflows at once, polled for every 50 ms, over 16 threads and connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.peers.protocol import Peer, main

CONNECTIONS = 16
CALLS_PER_TRANSACTION = 1000


class DbosPeer(Peer):
    """Each job is a workflow; its status stays in the system tables."""

    unfinished = (
        "select exists (select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', 'DELAYED'))"
    )
    clones = (("dbos.workflow_status", "workflow_uuid", "gen_random_uuid()::text"),)
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
                "application_version": "bench",
                "executor_id": "bench",
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )

        if self.load.kind == "sync":

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
            worker_concurrency=self.load.slots or 500,
            polling_interval_sec=poll,
            on_conflict="always_update",
        )

    async def setup(self) -> None:
        """Launch once: that migrates."""
        await asyncio.to_thread(self._launch)

    async def open(self) -> None:
        """Connect the client."""
        logging.getLogger("dbos").setLevel(logging.ERROR)
        self.padding = self.load.padding()
        self.client: Any = DBOSClient(system_database_url=self.url)
        self.engine = sqlalchemy.create_engine(self.url, pool_size=CONNECTIONS)
        self.options = {"queue_name": "default", "workflow_name": "job", "app_version": "bench"}

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by single calls in one transaction."""
        await asyncio.to_thread(self._enqueue, numbers)

    def _enqueue(self, numbers: Sequence[int]) -> None:
        with self.engine.begin() as connection:
            for number in numbers:
                self.client.enqueue_in_transaction(connection, self.options, number, self.padding)

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        await self.client.enqueue_async(self.options, number, self.padding)

    async def work(self, stop: asyncio.Event) -> None:
        """Run one executor."""
        await asyncio.to_thread(self._launch)
        await stop.wait()
        await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    main(DbosPeer)
