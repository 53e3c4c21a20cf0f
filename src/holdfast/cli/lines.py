"""Numbered lines from a pipe or a file, in batches: as many as are there, without waiting for more.

Of a line that is too long only the beginning is given, as soon as that is known: nobody keeps the rest.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncGenerator

CHUNK = 1 << 20
LONGEST_LINE = 4 << 20
# So many bytes are read ahead of what is being worked on.
MOST_AHEAD = 16 << 20
PATIENCE = 0.2

# Lines with their numbers from 1; empty ones are left out.
Batch = list[tuple[int, bytes]]


class LineReader:
    """Reads a file descriptor in batches of at most *most* lines; *bytes_read* says how far it is.

    It reads on while a batch is worked on, so the slower that is, the larger is the next one.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor, self._most = descriptor, most
        self._pending: Batch = []
        self._ahead = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._rest = b""
        # The line that goes on was too long, and is given already.
        self._is_given = False
        self._number = 0
        self.bytes_read = 0

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Give the lines until the input ends."""
        reading = asyncio.create_task(self._read_on(), name="holdfast lines")
        reading.add_done_callback(lambda _: self._news.set())
        try:
            while self._pending or not reading.done():
                if self._pending:
                    yield self._take()
                else:
                    self._news.clear()
                    await self._news.wait()
            reading.result()
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _read_on(self) -> None:
        while chunk := await self._read():
            self._split(chunk)
            self._news.set()
            while len(self._pending) >= self._most or self._ahead >= MOST_AHEAD:
                self._room.clear()
                await self._room.wait()
        self._add(self._rest)

    async def _read(self) -> bytes:
        # In short waits, so that whoever stops us does not have to wait for the input.
        while not await asyncio.to_thread(self._is_readable, PATIENCE):
            pass
        return os.read(self._descriptor, CHUNK)

    def _is_readable(self, seconds: float) -> bool:
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def _split(self, chunk: bytes) -> None:
        self.bytes_read += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._add(line)
        if self._is_given or len(self._rest) > LONGEST_LINE:
            if not self._is_given:
                self._add(self._rest[: LONGEST_LINE + 1])
            self._is_given, self._rest = True, b""

    def _add(self, line: bytes) -> None:
        if self._is_given:
            self._is_given = False
            return
        self._number += 1
        if line.strip():
            self._pending.append((self._number, line))
            self._ahead += len(line)

    def _take(self) -> Batch:
        taken, self._pending = self._pending[: self._most], self._pending[self._most :]
        self._ahead -= sum(len(line) for _, line in taken)
        self._room.set()
        return taken
