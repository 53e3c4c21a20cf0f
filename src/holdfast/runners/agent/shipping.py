"""Brings the output of one assignment to the server: masked, buffered, byte by byte accounted for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import ServerRefused, ServerUnavailable
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.masking import Masker
from holdfast.runners.agent.messages import Assignment, StreamTotal
from holdfast.runners.agent.spool import Budget, Spool
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service

STREAMS = ("stdout", "stderr", "system")
# The most that one request carries, in bytes.
PIECE = 512 * 1024
# Output is collected for so long, in seconds: a line is with the server well within 200 ms.
COLLECTED = 0.05
# A server that cannot be reached is asked again after so long, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
# So much of the end of stderr goes into the error of a failed command, in bytes.
TAIL = 4096


class LogShipper(Service):
    """Ships the streams of one assignment, each in order.

    What is written is masked first.  Nobody who writes ever waits for the server: what it cannot take now is
    kept on disk, and beyond the bound the oldest is dropped and marked as a gap.  *refused* says that it
    wants no more.
    """

    name = "logs"

    def __init__(
        self, connection: Connection, assignment: Assignment, folder: Path, *, bound: int, events: Events
    ) -> None:
        super().__init__(events)
        self._connection, self._assignment = connection, assignment
        budget = Budget(bound)
        self._spools = {name: Spool(folder, name, budget) for name in STREAMS}
        self._maskers: dict[str, Masker] = {name: Masker(()) for name in STREAMS}
        self._cut: set[str] = set()
        self._pause = FIRST_PAUSE
        self._idle = asyncio.Event()
        self._idle.set()
        self.refused = False
        self._tail = b""
        self.alive = False

    def mask(self, secrets: Iterable[bytes]) -> None:
        """Keep these secrets out of everything that is written from now on."""
        secrets = tuple(secrets)
        self._maskers = {name: Masker(secrets) for name in STREAMS}

    def write(self, stream: str, data: bytes) -> None:
        """Take the next bytes of a stream."""
        self.alive = True
        self._keep(stream, self._maskers[stream].feed(data))

    def say(self, line: str) -> None:
        """Write a line of the runner's own into the stream ``system``."""
        self.write("system", f"{line}\n".encode())

    def _keep(self, stream: str, shown: bytes) -> None:
        if not shown:
            return
        if stream == "stderr":
            self._tail = (self._tail + shown)[-TAIL:]
        if stream not in self._cut:
            self._spools[stream].append(shown)
            self._idle.clear()
            self.wake()

    def close(self) -> None:
        """Give out what the maskers hold back: the program has ended."""
        for name, masker in self._maskers.items():
            self._keep(name, masker.end())

    @property
    def tail(self) -> str:
        """The end of stderr as it is shown, from the beginning of a line."""
        text = self._tail.decode("utf-8", "replace")
        return (text.partition("\n")[2] or text if len(self._tail) >= TAIL else text).strip()

    @property
    def is_delivered(self) -> bool:
        """True where the server has everything, or knows what is lost."""
        return not self._waiting()

    async def delivered(self, patience: float | None = None) -> bool:
        """Wait until the server has everything, or knows what is lost; False if it took too long."""
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            return False
        return not self.refused

    def give_up(self) -> None:
        """Ship nothing more: nobody wants it."""
        self.refused = True
        self._idle.set()

    @property
    def totals(self) -> dict[str, StreamTotal]:
        """What each stream came to."""
        return {
            name: StreamTotal(size=spool.size, sha256=spool.sha256, gap=spool.is_unsure or not spool.is_empty)
            for name, spool in self._spools.items()
            if spool.size
        }

    def end(self) -> None:
        """Delete what is kept on disk."""
        for spool in self._spools.values():
            spool.give_up()

    async def turn(self) -> float:
        """Ship what has come; answers when to look again."""
        try:
            while not self.refused and (waiting := self._waiting()):
                for name in waiting:
                    await self._ship(name, self._spools[name])
        except ServerUnavailable as error:
            self.events.emit("logs.delayed", fence=self._assignment.fence, error=error, retry_in=self._pause)
            rest, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 2)
            # What comes meanwhile must not cut this pause short.
            await asyncio.sleep(rest)
            return 0.0
        except ServerRefused as error:
            # The attempt is somebody else's, or these bytes are not wanted: the end will tell.
            self.give_up()
            self.events.emit("logs.refused", fence=self._assignment.fence, error=error)
        self._pause = FIRST_PAUSE
        self._idle.set()
        await asyncio.sleep(COLLECTED)
        return 3600.0

    def _waiting(self) -> list[str]:
        return [name for name, spool in self._spools.items() if not spool.is_empty]

    async def _ship(self, name: str, spool: Spool) -> None:
        before = spool.acknowledged
        if name in self._cut:
            spool.give_up()
            return
        if lost := spool.lost:
            self.events.emit("logs.dropped", fence=self._assignment.fence, stream=name, bytes=lost)
            place = await self._connection.append_gap(self._assignment, name, before, lost)
            data = b""
        else:
            data = await asyncio.to_thread(spool.read, PIECE)
            place = await self._connection.append(self._assignment, name, before, data)
        if place.cut:
            self._cut.add(name)
        if place.offset < before:
            # The server has forgotten what it had acknowledged; we have not kept it.
            await self._connection.append_gap(self._assignment, name, place.offset, before - place.offset)
            return
        spool.acknowledge(place.offset, data)
        self.events.emit("logs.shipped", stream=name, bytes=place.offset - before)
