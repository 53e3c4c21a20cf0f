"""The floor as a program in Python meets it: bare statements by asyncpg, a connection for each client.

What is left between the floor of pgbench and this one is the language and its driver; what is left between
this one and a queue in Python is the queue.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from bench.peers.protocol import Peer, main

FLOOR = Path(__file__).parent.parent / "floor"


def statement(name: str) -> str:
    """Return one of the floor's statements as asyncpg wants it."""
    return (FLOOR / f"{name}.sql").read_text("utf-8").replace(":pad", "$1")


class FloorInPython(Peer):
    """A loop that inserts and commits; a listener that claims the one job which it was told of."""

    async def setup(self) -> None:
        """Make the tables and pin the plans."""
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(statement("schema"))
        await connection.close()

    async def open(self) -> None:
        """Connect, and make the statement ready."""
        self.padding = self.load.padding()
        self.connection = await asyncpg.connect(self.dsn)
        self.inserting = await self.connection.prepare(
            statement("announce" if self.load.latency else "insert")
        )

    async def close(self) -> None:
        """Disconnect."""
        await self.connection.close()

    async def insert(self, number: int) -> None:
        """Insert one job; its number is of use only to those who are told of it."""
        await self.inserting.fetch(*(number, self.padding) if self.load.latency else (self.padding,))

    async def work(self, stop: asyncio.Event) -> None:
        """Claim what is announced, one job after the other, and what was there before."""
        announced: asyncio.Queue[int] = asyncio.Queue()
        listener = await asyncpg.connect(self.dsn)
        await listener.add_listener("jobs", lambda *heard: announced.put_nowait(int(str(heard[-1]))))
        for (job,) in await listener.fetch("select job_id from live_jobs order by job_id"):
            announced.put_nowait(job)
        taking = asyncio.create_task(self._take(announced))
        await stop.wait()
        taking.cancel()
        await listener.close()

    async def _take(self, announced: asyncio.Queue[int]) -> None:
        take = await self.connection.prepare(statement("take"))
        while True:
            number = await take.fetchval(await announced.get())
            if number is not None:
                await self.handle(number)


if __name__ == "__main__":
    main(FloorInPython)
