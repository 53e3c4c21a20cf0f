"""absurd: 100 tasks at once, claimed in batches of 100; durable runs by eight workers, a connection each."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd
from psycopg import AsyncConnection

from bench.peers.protocol import Peer, main

CALLS_PER_TRANSACTION = 1000
RUN_WORKERS = 8


class AbsurdPeer(Peer):
    """It has no enqueue for many and no wake-up: calls share a transaction, workers poll."""

    unfinished = (
        "select exists (select from absurd.t_default where state not in ('completed', 'failed', 'cancelled'))"
    )
    asleep = "select count(*) from absurd.t_default where state = 'sleeping'"
    completed = "select count(*) from absurd.t_default where state = 'completed'"
    bulk = CALLS_PER_TRANSACTION

    async def setup(self) -> None:
        """Apply its schema and create the queue."""
        program = Path(sys.executable).parent / "absurdctl"
        environment = os.environ | {"ABSURD_DATABASE_URL": self.dsn}
        making = await asyncio.create_subprocess_exec(program, "init", env=environment, stdout=DEVNULL)
        if await making.wait():
            raise SystemExit("absurdctl init failed")
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await AsyncAbsurd(connection).create_queue("default")

    async def open(self) -> None:
        """Connect once for each call at the same moment."""
        self.padding = self.load.padding()
        self.free: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        for _ in range(self.load.connections(1)):
            connection = await AsyncConnection.connect(self.dsn, autocommit=True)
            self.free.put_nowait((connection, AsyncAbsurd(connection)))

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[tuple[Any, Any]]:
        # One call runs at a time on a connection.
        lent = await self.free.get()
        try:
            yield lent
        finally:
            self.free.put_nowait(lent)

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue by single calls in one transaction."""
        async with self._lent() as (connection, app), connection.transaction():
            for number in numbers:
                await app.spawn("job", {"number": number, "pad": self.padding}, queue="default")

    async def insert(self, number: int) -> None:
        """Enqueue one job."""
        async with self._lent() as (_, app):
            await app.spawn("job", {"number": number, "pad": self.padding}, queue="default")

    async def signal(self, numbers: Sequence[int]) -> None:
        """Emit the events that runs wait for, by single calls in one transaction."""
        async with self._lent() as (connection, app), connection.transaction():
            for number in numbers:
                await app.emit_event(f"go {number}", queue_name="default")

    async def work(self, stop: asyncio.Event) -> None:
        """Run one worker, or several where each step costs a round trip on the worker's connection."""
        count = RUN_WORKERS if self.load.steps else 1
        apps = [AsyncAbsurd(self.dsn, queue_name="default") for _ in range(count)]
        # Whoever measures latency would have it poll more often.
        poll, slots = 0.01 if self.load.latency else 0.25, self.load.slots or 100 // count
        running = []
        for app in apps:
            app.register_task("job")(self._run if self.load.steps else self._job)
            working = app.start_worker(concurrency=slots, batch_size=slots, poll_interval=poll)
            running.append(asyncio.create_task(working))
        await stop.wait()
        for app in apps:
            app.stop_worker()
        await asyncio.wait(running, timeout=5)
        for app in apps:
            await app.close()

    async def _job(self, params: Any, _context: Any) -> None:
        await self.handle(params["number"])

    async def _run(self, params: Any, context: Any) -> None:
        number, load = params["number"], self.load
        for nth in range(load.steps):
            if load.wait and nth == load.steps - 1:
                if load.wait == "signal":
                    await context.await_event(f"go {number}")
                else:
                    await context.sleep_until("nap", load.wake_at)
            await context.step("step", partial(self.step, number, nth))


if __name__ == "__main__":
    main(AbsurdPeer)
