"""Writes what attempts came to: in batches, fenced, and until the database has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.errors import HoldfastError, InputInvalid
from holdfast.model.outcome import Fail, PutBack, Suspend, Transition
from holdfast.rules.outcome import storable
from holdfast.runtime.events import Events
from holdfast.store import attempts, runs
from holdfast.store.attempts import Ended, Fence, Returned
from holdfast.store.database import Database
from holdfast.store.runs import Suspended
from holdfast.store.statement import Statement
from holdfast.worker.running import Held, Running

MOST_IN_FLIGHT = 2
LARGEST_BATCH = 1000
LONGEST_PAUSE = 5.0

One = TypeVar("One", Ended, Returned, Suspended)


class Reporter:
    """Collects decisions and writes them as soon as a connection is free.

    At most two batches are unacknowledged; while they are under way, the next one grows.  A batch
    that the database cannot take now is tried again until it can: only a lost lease ends that.
    *settled* is called whenever a batch is acknowledged.
    """

    def __init__(self, database: Database, held: Held, events: Events) -> None:
        self._database, self._held, self._events = database, held, events
        self._ended: list[Ended] = []
        self._returned: list[Returned] = []
        self._suspended: list[Suspended] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.settled: Callable[[], None] = lambda: None
        self.before_flush: Callable[[Sequence[Fence]], asyncio.Future[None] | None] | None = None

    def report(self, running: Running, decision: Transition) -> None:
        """Take over one decision; the attempt counts as held until it is written."""
        kind = running.claimed.kind
        if isinstance(decision, PutBack):
            self._returned.append(Returned(running.fence, decision, running.seconds, kind))
        elif isinstance(decision, Suspend):
            self._suspended.append(Suspended(running.fence, decision, running.seconds, kind))
        else:
            self._ended.append(Ended(running.fence, decision, running.seconds, kind))
        self._take_off()

    def put_back(self, fences: Sequence[Fence], decision: PutBack) -> None:
        """Give attempts back whose handlers never began."""
        self._returned.extend(Returned(fence, decision) for fence in fences)
        self._take_off()

    @property
    def pending(self) -> int:
        """How many decisions are not acknowledged yet, without those in flight."""
        return len(self._ended) + len(self._returned) + len(self._suspended)

    async def flush(self) -> None:
        """Wait until everything reported so far is acknowledged."""
        while self._flights or self.pending:
            self._take_off()
            await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """Give up what is in flight, for good: a rescue decides about what is not written."""
        self._stopped = True
        for flight in self._flights:
            flight.cancel()
        await asyncio.gather(*self._flights, return_exceptions=True)

    def _take_off(self) -> None:
        if self._stopped or not self.pending or len(self._flights) >= MOST_IN_FLIGHT:
            return
        flight = asyncio.create_task(self._fly(), name="holdfast report")
        self._flights.add(flight)
        flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled() and (error := flight.exception()) is not None:
            self._events.emit("report.failed", error=error, attempts=self.pending, retry_in=LONGEST_PAUSE)
            flight.get_loop().call_later(LONGEST_PAUSE, self._take_off)
            return
        self._take_off()

    async def _fly(self) -> None:
        ended, self._ended = self._ended[:LARGEST_BATCH], self._ended[LARGEST_BATCH:]
        returned, self._returned = self._returned[:LARGEST_BATCH], self._returned[LARGEST_BATCH:]
        suspended, self._suspended = self._suspended[:LARGEST_BATCH], self._suspended[LARGEST_BATCH:]
        if self.before_flush is not None:
            fences = [one.fence for batch in (ended, returned, suspended) for one in batch]
            written = self.before_flush(fences)
            if written is not None:
                await written
        try:
            if ended:
                await self._write(attempts.finish_jobs, ended)
            if returned:
                await self._write(attempts.put_back_jobs, returned)
            if suspended:
                await self._write(runs.suspend_runs, suspended)
        except BaseException:
            # A decision must not be lost to a surprise: written twice it is refused, written never it hangs.
            self._ended[:0], self._returned[:0], self._suspended[:0] = ended, returned, suspended
            raise

    async def _write(
        self,
        make: Callable[[Sequence[One]], Statement[list[int]]],
        batch: list[One],
        *,
        is_last_word: bool = False,
    ) -> None:
        pause = 0.05
        while True:
            try:
                accepted = await self._database.run(make(batch))
            except HoldfastError as error:
                if isinstance(error, InputInvalid) and not is_last_word:
                    await self._write_singly(make, batch, error)
                    return
                self._events.emit("report.delayed", error=error, attempts=len(batch), retry_in=pause)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                # Whoever was declared lost meanwhile has been dropped from what is held.
                batch = [one for one in batch if one.fence in self._held.fences]
                if not batch:
                    return
            else:
                self._settle(batch, set(accepted))
                return

    async def _write_singly(
        self, make: Callable[[Sequence[One]], Statement[list[int]]], batch: list[One], error: InputInvalid
    ) -> None:
        """Separate what the database refuses from the rest of its batch, and fail only that."""
        if len(batch) > 1:
            for one in batch:
                await self._write(make, [one])
            return
        text = storable(f"the outcome could not be stored: {error}")
        failed = [Ended(batch[0].fence, Fail(error=text, reason=text), batch[0].seconds, batch[0].kind)]
        await self._write(attempts.finish_jobs, failed, is_last_word=True)

    def _settle(self, batch: Sequence[Ended | Returned | Suspended], accepted: set[int]) -> None:
        self._held.drop([one.fence for one in batch])
        stale = [one.fence for one in batch if one.fence.job_id not in accepted]
        if stale:
            self._events.emit("attempts.stale", fences=stale)
        self._events.emit("attempts.reported", batch=batch, accepted=len(accepted), stale=stale)
        self.settled()
