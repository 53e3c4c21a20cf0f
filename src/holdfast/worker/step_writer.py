"""Writes what runs remember: the places of many runs in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.errors import DatabaseRefused, HoldfastError, InputInvalid, LeaseLost
from holdfast.model.step import StepNote
from holdfast.runtime.events import Events
from holdfast.runtime.pauses import doubling
from holdfast.store import steps
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.worker.running import Held

MOST_IN_FLIGHT = 2
LARGEST_BATCH = 500


@dataclass(frozen=True, slots=True)
class Page:
    """What one run wants written, and who waits for it."""

    fence: Fence
    notes: Sequence[StepNote]
    written: asyncio.Future[bool]

    def tell(self, paused: bool) -> None:
        """Say that it is written, and whether the run is to be paused."""
        if not self.written.done():
            self.written.set_result(paused)

    def refuse(self, error: Exception) -> None:
        """Say that it is not written."""
        if not self.written.done():
            self.written.set_exception(error)


class StepWriter:
    """Collects what runs want to remember, and writes it as soon as a connection is free.

    At most two batches are unacknowledged; while they are under way, the next one grows.  A batch that the
    database cannot take now is tried again for as long as its leases hold.
    """

    def __init__(self, database: Database, held: Held, events: Events) -> None:
        self._database, self._held, self._events = database, held, events
        self._pages: list[Page] = []
        self._in_flight: set[asyncio.Task[None]] = set()
        self._stopped = False

    def hand_in(self, fence: Fence, notes: Sequence[StepNote]) -> asyncio.Future[bool]:
        """Write places of a run; the future tells whether it is to be paused, or raises `LeaseLost`."""
        page = Page(fence, notes, asyncio.get_running_loop().create_future())
        self._pages.append(page)
        self._begin_writes()
        return page.written

    async def stop(self) -> None:
        """Give up what is in flight, for good: nobody waits for it any more."""
        self._stopped = True
        for write in self._in_flight:
            write.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    def _begin_writes(self) -> None:
        if self._pages and not self._stopped and len(self._in_flight) < MOST_IN_FLIGHT:
            batch, self._pages = self._pages[:LARGEST_BATCH], self._pages[LARGEST_BATCH:]
            write = asyncio.create_task(self._write(batch), name="holdfast step writer")
            self._in_flight.add(write)
            write.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: list[Page], write: asyncio.Task[None]) -> None:
        self._in_flight.discard(write)
        if not write.cancelled() and (surprise := write.exception()) is not None:
            # A page that is never answered would hang its run for ever.
            self._events.emit("steps.refused", error=surprise, runs=len(batch))
            for page in batch:
                page.refuse(DatabaseRefused(f"what the run remembers cannot be written: {surprise!r}"))
        self._begin_writes()

    async def _write(self, batch: list[Page]) -> None:
        pauses = doubling()
        while batch:
            try:
                saved = await self._database.run(steps.save_steps(_notes(batch)))
            except InputInvalid as error:
                await self._write_singly(batch, error)
                return
            except HoldfastError as error:
                pause = next(pauses)
                self._events.emit("steps.delayed", error=error, runs=len(batch), retry_in=pause)
                await asyncio.sleep(pause)
                batch = self._still_held(batch)
            else:
                _tell(batch, saved)
                return

    async def _write_singly(self, batch: list[Page], error: InputInvalid) -> None:
        """Separate what the database refuses from the rest."""
        if len(batch) == 1:
            batch[0].refuse(error)
            return
        for page in batch:
            await self._write([page])

    def _still_held(self, batch: list[Page]) -> list[Page]:
        for page in batch:
            if page.fence not in self._held.fences:
                page.refuse(LeaseLost(*page.fence))
        return [page for page in batch if not page.written.done()]


def _notes(batch: list[Page]) -> list[tuple[Fence, StepNote]]:
    # Branches that begin at once all bring what came before them: the very same notes.
    unlike = {(page.fence, id(note)): (page.fence, note) for page in batch for note in page.notes}
    return list(unlike.values())


def _tell(batch: list[Page], saved: dict[int, bool]) -> None:
    for page in batch:
        paused = saved.get(page.fence.job_id)
        if paused is None:
            page.refuse(LeaseLost(*page.fence))
        else:
            page.tell(paused)
