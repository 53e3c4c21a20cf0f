"""Keeps log lines and progress of running attempts, and writes them behind the handlers' backs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.rules.outcome import storable
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import attempts, logs
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.logs import LogLine
from holdfast.worker.bundles import Bundles
from holdfast.worker.running import Cause, Held, Settlement

# For how long what comes in is gathered after a write, in seconds.
WRITE_EVERY = 0.5
MAX_LOG_BYTES = 1024 * 1024
# How long it rests where there is nothing to write and nobody wakes it, in seconds.
IDLE = 3600.0
# For how long an attempt's last lines are tried again while the database is away, and how often, in seconds.
PATIENCE, PAUSE = 10.0, 0.2

# The attempt whose handler is running in this context, for the logging handler below.
current_attempt: ContextVar[Fence | None] = ContextVar("holdfast_attempt", default=None)


class Journal(Service):
    """Collects from any thread; writes every half second and before an attempt's end is reported."""

    name = "journal"

    def __init__(self, database: Database, held: Held, events: Events, bundles: Bundles) -> None:
        super().__init__(events)
        self._database, self._held, self._bundles = database, held, bundles
        self._lock = threading.Lock()
        self._lines: dict[Fence, list[LogLine]] = {}
        self._sizes: dict[Fence, int] = {}
        self._progress: dict[Fence, tuple[float, str | None]] = {}
        self._writing = asyncio.Lock()
        self._in_flight: frozenset[Fence] = frozenset()
        # Of these a write whose answer was lost may have put in lines that are to be written again.
        self._in_doubt: set[Fence] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.get_running_loop()
        await super().start()

    def log(self, fence: Fence, level: int, text: str) -> None:
        """Keep one line of an attempt's log; past 1 MiB the log is cut with a clear marker."""
        line = storable(text)
        if fence not in self._held.running:
            # A thread that works on after its attempt has ended; the database would refuse it as well.
            return
        with self._lock:
            offset = self._sizes.get(fence, 0)
            if offset > MAX_LOG_BYTES:
                return
            size = len(line.encode()) + 1
            if offset + size > MAX_LOG_BYTES:
                line, size = f"… log cut here: it may have {MAX_LOG_BYTES:,} bytes …", MAX_LOG_BYTES + 1
            self._sizes[fence] = offset + size
            kept = LogLine(
                fence, offset, datetime.now(UTC), storable(logging.getLevelName(level)).lower(), line
            )
            self._lines.setdefault(fence, []).append(kept)
        self._schedule()

    def progress(self, fence: Fence, fraction: float, note: str | None) -> None:
        """Keep the newest progress of an attempt."""
        if fence not in self._held.running:
            return
        with self._lock:
            self._progress[fence] = (fraction, note)
        self._schedule()

    def _schedule(self) -> None:
        if self._loop is not None and not self.is_woken:
            self._loop.call_soon_threadsafe(self.wake)

    async def turn(self) -> float:
        """Write everything that has come in since the last turn."""
        with self._lock:
            lines, self._lines = self._lines, {}
            progress, self._progress = self._progress, {}
            self._in_flight = frozenset(lines)
            self._forget_ended()
        if not lines and not progress:
            return IDLE
        try:
            await self._write_or_take_back(lines)
            await self._write_progress(progress)
        except HoldfastError:
            self._take_progress_back(progress)
            raise
        # What comes in meanwhile waits, so that a chatty handler costs two writes a second.
        await asyncio.sleep(WRITE_EVERY)
        return 0.0

    async def _write_or_take_back(self, lines: dict[Fence, list[LogLine]]) -> None:
        try:
            async with self._writing:
                await self._write_lines([line for one in lines.values() for line in one])
        except HoldfastError as error:
            self._take_back(lines, error)
            raise
        finally:
            self._in_flight = frozenset()

    async def _write_progress(self, progress: dict[Fence, tuple[float, str | None]]) -> None:
        """Write the progress of each attempt, and leave in *progress* what could not be written."""
        for fence, (fraction, note) in tuple(progress.items()):
            await self._bundles.untie([fence])
            if not await self._database.run(attempts.report_progress(fence, fraction, note)):
                self._lost(fence)
            del progress[fence]

    def settle(self, fences: Sequence[Fence]) -> asyncio.Future[None] | None:
        """Write the last lines of attempts that are about to be reported; None where there are none."""
        if not (self._lines or self._in_flight or self._sizes or self._progress):
            return None
        with self._lock:
            for fence in fences:
                self._progress.pop(fence, None)
            self._forget_ended()
            # Lines that a turn is writing just now would find the lease gone if the report overtook them.
            if self._lines.keys().isdisjoint(fences) and self._in_flight.isdisjoint(fences):
                return None
        return asyncio.ensure_future(self._write_last(fences))

    def _forget_ended(self) -> None:
        for fence in [fence for fence in self._sizes if fence not in self._held.running]:
            del self._sizes[fence]

    def _take_back(self, lines: dict[Fence, list[LogLine]], error: HoldfastError) -> None:
        held = self._held.fences
        with self._lock:
            for fence, first in lines.items():
                if fence in held:
                    self._in_doubt.add(fence)
                    self._lines[fence] = first + self._lines.get(fence, [])
                else:
                    self._in_doubt.discard(fence)
        if lost := sum(len(first) for fence, first in lines.items() if fence not in held):
            self.events.emit("log.lost", error=error, lines=lost)
        self.wake()

    def _take_progress_back(self, unwritten: dict[Fence, tuple[float, str | None]]) -> None:
        """Leave it to the next turn, unless there is newer progress or the attempt has ended."""
        with self._lock:
            left = {fence: one for fence, one in unwritten.items() if fence in self._held.running}
            self._progress = left | self._progress

    async def _write_last(self, fences: Sequence[Fence]) -> None:
        async with self._writing:
            # Only now: what a turn could not write has come back.
            with self._lock:
                lines = [line for fence in fences for line in self._lines.pop(fence, ())]
            try:
                await self._write_patiently(lines)
            except HoldfastError as error:
                # The outcome matters more than its log: say what was lost and go on.
                self._in_doubt.difference_update(fences)
                self.events.emit("log.lost", error=error, lines=len(lines))

    async def _write_patiently(self, lines: list[LogLine]) -> None:
        """Write lines once the database is back: what is reported after them has to wait for it as well."""
        began = time.monotonic()
        while True:
            try:
                return await self._write_lines(lines)
            except DatabaseUnavailable:
                if time.monotonic() > began + PATIENCE:
                    raise
                self._in_doubt.update(line.fence for line in lines)
                await asyncio.sleep(PAUSE)

    async def _write_lines(self, lines: list[LogLine]) -> None:
        if not lines:
            return
        fences = {line.fence for line in lines}
        again = not self._in_doubt.isdisjoint(fences)
        await self._bundles.untie(fences)
        held = await self._database.run(logs.append_logs(lines, again=again))
        self._in_doubt -= fences
        known = set(held)
        refused = [line.fence for line in lines if line.fence.job_id not in known]
        if refused:
            msg = "attempt {1} of job {0} had ended, or lost its lease, before they were written".format(
                *refused[0]
            )
            self.events.emit("log.lost", error=HoldfastError(msg), lines=len(refused))
        for fence in set(refused):
            self._lost(fence)

    def _lost(self, fence: Fence) -> None:
        running = self._held.running.get(fence)
        if running is not None and running.settlement not in (Settlement.UNDER_WAY, Settlement.COMMITTED):
            running.interrupt(Cause.LOST)


class JournalHandler(logging.Handler):
    """Puts records of the standard logging module that a handler causes into its attempt's log."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(level=logging.INFO)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if a handler's context caused it."""
        fence = current_attempt.get()
        if fence is None:
            return
        try:
            self._journal.log(fence, record.levelno, self.format(record))
        except Exception:
            # As logging demands: a bad log call is told on stderr and never hurts its caller.
            self.handleError(record)
