"""Writes behind an engine's back, so that watching a step neither fails it nor slows it down."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.errors import HoldfastError, InputInvalid
from holdfast.model.activity import ActivityNote
from holdfast.model.step import StepNote
from holdfast.runtime.events import Events
from holdfast.store import activities, steps
from holdfast.store.attempts import Fence
from holdfast.store.database import Database

LARGEST_BATCH = 500
# What waits beyond this many notes is dropped, the oldest first.
MOST_WAITING = 10_000
# The rests between the tries of a batch, in seconds; after the last one it is dropped.
PAUSES = (0.05, 0.25, 1.0, 5.0)
LONGEST_SETTLE = 10.0

Note = StepNote | ActivityNote


@dataclass(frozen=True, slots=True)
class Entry:
    """A note, for whom it is written, and when it was handed in by the monotonic clock."""

    fence: Fence
    note: Note
    at: float

    def now(self) -> Note:
        """Return the note with its times counted from now."""
        passed = time.monotonic() - self.at
        if isinstance(self.note, ActivityNote):
            return replace(self.note, ago=self.note.ago + passed)
        return replace(self.note, seconds=(self.note.seconds or 0.0) + passed)


class Pen:
    """Takes notes at once and writes them in batches, in order.

    What the database does not take in some seconds is dropped, and told as the event ``notes.dropped``; so is
    what it refuses.  Notes of an attempt that has lost its lease are left out.
    """

    def __init__(self, database: Database, events: Events) -> None:
        self._database, self._events = database, events
        self._entries: deque[Entry] = deque()
        self._flight: asyncio.Task[None] | None = None

    def put(self, fence: Fence, note: Note) -> None:
        """Take a note; neither waits nor raises."""
        if len(self._entries) >= MOST_WAITING:
            self._entries.popleft()
            self._events.emit("notes.dropped", count=1, error="too many notes are waiting")
        self._entries.append(Entry(fence, note, time.monotonic()))
        if self._flight is None or self._flight.done():
            self._flight = asyncio.create_task(self._write_all(), name="holdfast engine pen")

    async def settle(self) -> None:
        """Wait until what was taken is written or dropped, at most ten seconds."""
        if self._flight is not None and not self._flight.done():
            await asyncio.wait({self._flight}, timeout=LONGEST_SETTLE)

    async def close(self) -> None:
        """Settle, and give up what is left."""
        await self.settle()
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.gather(self._flight, return_exceptions=True)

    async def _write_all(self) -> None:
        while self._entries:
            batch = [self._entries.popleft() for _ in range(min(len(self._entries), LARGEST_BATCH))]
            await self._write(batch)

    async def _write(self, batch: Sequence[Entry]) -> None:
        problem: HoldfastError | None = None
        for pause in (*PAUSES, None):
            try:
                await self._once(batch, again=problem is not None)
            except InputInvalid as refused:
                problem = refused
                break
            except HoldfastError as error:
                problem = error
                if pause is not None:
                    await asyncio.sleep(pause)
            else:
                return
        if isinstance(problem, InputInvalid) and len(batch) > 1:
            for entry in batch:
                await self._write([entry])
        else:
            self._events.emit("notes.dropped", count=len(batch), error=problem)

    async def _once(self, batch: Sequence[Entry], *, again: bool) -> None:
        notes = [(entry.fence, entry.now()) for entry in batch]
        shown = [(fence, note) for fence, note in notes if isinstance(note, StepNote)]
        if shown:
            await self._database.run(steps.save_steps(shown))
        logged = [(fence, note) for fence, note in notes if isinstance(note, ActivityNote)]
        if logged:
            await self._database.run(activities.append_activities(logged, again=again))
