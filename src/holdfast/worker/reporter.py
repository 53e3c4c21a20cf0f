"""Writes what attempts came to: in batches, fenced, and until the database has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, InputInvalid
from holdfast.model.outcome import Complete, Fail, PutBack, Suspend, Transition
from holdfast.rules.outcome import released, storable
from holdfast.rules.reports import is_recorded
from holdfast.runtime.events import Events
from holdfast.runtime.pauses import LONGEST_PAUSE, doubling
from holdfast.store import attempts
from holdfast.store.attempts import Ended, Fence, Returned
from holdfast.store.database import Database
from holdfast.store.runs import Suspended
from holdfast.store.statement import Statement
from holdfast.worker.backlog import Backlog, One
from holdfast.worker.bundles import Bundles
from holdfast.worker.permits import Permits
from holdfast.worker.running import Held, Running

MOST_IN_FLIGHT = 2
# A database that takes so many seconds for a batch of so many has more to do than it has processors: a second
# write beside that one would only want one more.
CROWDED, MANY = 0.02, 100
# One that takes so many seconds hangs: somebody's open transaction has a row of it.
HANGING = 1.0


class Reporter:
    """Collects decisions and writes them as soon as a connection is free.

    At most two batches are unacknowledged, one where the database is crowded or bundles are in use, beside
    one that hangs; while they are under way, the next one grows.  A batch that the database cannot take now
    is tried again until it can: only a lost lease ends that.
    Attempts that share a permit of a limited queue, or the turn of a key, are written in the order in which
    they had it, whatever became of them, so one batch of them is under way at a time, beside the others.
    *completed* is called with each attempt that has others of its key beside it, once it has completed.
    *acknowledged* is called whenever a batch is, with the limited queues in which it may have made
    room; None among them stands for what was given back, of which others are told already.  *before_flush*
    is called with the attempts of a batch, which waits for what that answers.
    """

    def __init__(
        self,
        database: Database,
        held: Held,
        permits: Permits,
        events: Events,
        *,
        before_flush: Callable[[Sequence[Fence]], asyncio.Future[None] | None],
        bundles: Bundles,
    ) -> None:
        self._database, self._held, self._permits, self._events = database, held, permits, events
        self._before_flush, self._bundles = before_flush, bundles
        self._unordered, self._ordered = Backlog(), Backlog()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._hanging: set[asyncio.Task[None]] = set()
        # The one among them that writes what has an order.
        self._ordered_write: asyncio.Task[None] | None = None
        # The limited queue that has room once an attempt's end is written; None: the attempt was given back.
        self._frees: dict[Fence, str | None] = {}
        self._stopped, self._is_crowded = False, False
        self.completed: Callable[[Fence], object] = lambda _: None
        self.acknowledged: Callable[[Set[str | None]], None] = lambda _: None

    def report(
        self, running: Running, decision: Transition, heir: Fence | None = None, *, frees: str | None = None
    ) -> None:
        """Take over one decision; the attempt counts as held until it is written.

        *heir* is the attempt to which its permit went, *frees* the limited queue that will have room instead.
        """
        fence, kind, now = running.fence, running.claimed.kind, time.monotonic()
        seconds = now - running.began
        if frees is not None:
            self._frees[fence] = frees
        recorded, turn = running.permit_recorded, None
        if running.claimed.key is not None:
            turn = running.turn(now)
            if type(decision) is Complete and not running.is_worked_on:
                self.completed(fence)
        is_unordered = heir is None and turn is None and (recorded is None or recorded.done())
        backlog = self._unordered if is_unordered else self._ordered
        if isinstance(decision, PutBack):
            backlog.returned.waiting.append(Returned(fence, decision, seconds, kind))
        elif isinstance(decision, Suspend):
            backlog.suspended.waiting.append(Suspended(fence, decision, seconds, kind))
        else:
            backlog.ended.waiting.append(Ended(fence, decision, seconds, kind, heir, now, turn))
        # Under load it has to wait for a batch to be written, and nothing is to be looked at before.
        if not self._is_busy if is_unordered else self._ordered_write is None:
            self._begin_writes()

    def release(self, fences: Sequence[Fence], reason: str) -> None:
        """Give attempts back unspent whose handlers never began."""
        decision = released(reason)
        self._frees.update(dict.fromkeys(fences))
        for fence in fences:
            backlog = self._unordered if self._permits.unrecorded(fence) is None else self._ordered
            backlog.returned.waiting.append(Returned(fence, decision))
        self._begin_writes()

    @property
    def pending(self) -> int:
        """How many decisions are not acknowledged yet, without those in flight."""
        return len(self._unordered) + len(self._ordered)

    async def flush(self) -> None:
        """Wait until everything reported so far is acknowledged, or given up."""
        while not self._stopped and (self._in_flight or self.pending):
            self._begin_writes()
            await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """Give up what is in flight, for good: a rescue decides about what is not written."""
        self._stopped = True
        for write in self._in_flight:
            write.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    def _begin_writes(self) -> None:
        if self._stopped:
            return
        if self._ordered_write is None and len(self._ordered):
            self._ordered_write = self._launch(self._write_next(self._ordered))
        if not self._is_busy and len(self._unordered):
            self._launch(self._write_next(self._unordered))

    @property
    def _is_busy(self) -> bool:
        """True while as many batches are under way as may be, beside one of those that share permits."""
        # Two batches of one bundle would wait for one another.
        is_narrow = self._is_crowded or self._bundles.in_use
        most = 1 if is_narrow and not self._hanging else MOST_IN_FLIGHT
        return len(self._in_flight) - (self._ordered_write is not None) >= most

    def _launch(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        write = asyncio.create_task(writing, name="holdfast report")
        self._in_flight.add(write)
        write.add_done_callback(self._ended)
        write.get_loop().call_later(HANGING, self._check, write)
        return write

    def _check(self, write: asyncio.Task[None]) -> None:
        if write in self._in_flight:
            self._hanging.add(write)
            self._begin_writes()

    def _ended(self, write: asyncio.Task[None]) -> None:
        self._in_flight.discard(write)
        self._hanging.discard(write)
        if write is self._ordered_write:
            self._ordered_write = None
        if not write.cancelled() and (error := write.exception()) is not None:
            self._events.emit("report.failed", error=error, attempts=self.pending, retry_in=LONGEST_PAUSE)
            write.get_loop().call_later(LONGEST_PAUSE, self._begin_writes)
            return
        self._begin_writes()

    async def _write_next(self, backlog: Backlog) -> None:
        batches, begun = backlog.take(), time.monotonic()
        try:
            written = self._before_flush([one.fence for _, batch in batches for one in batch])
            if written is not None:
                await written
            for pile, batch in batches:
                left = batch
                if batch and pile is backlog.ended:
                    left = await self._complete(batch)
                if left:
                    await self._write(pile.make, left)
            size = sum(len(batch) for _, batch in batches)
            self._is_crowded = size >= MANY and time.monotonic() - begun > CROWDED
        except BaseException:
            # A decision must not be lost to a surprise: written twice it is refused, written never it hangs.
            for pile, batch in batches:
                pile.waiting[:0] = [one for one in batch if one.fence in self._held.fences]
            raise

    async def _write(
        self,
        make: Callable[[Sequence[One]], Statement[list[int]]],
        batch: list[One],
        *,
        is_last_word: bool = False,
    ) -> None:
        for pause in doubling():
            try:
                await self._bundles.untie(one.fence for one in batch)
                accepted: list[int] = await self._database.run_read_committed(make(batch))
                if len(accepted) < len(batch):
                    accepted += await self._recorded_before(batch, accepted)
            except HoldfastError as error:
                if isinstance(error, InputInvalid) and not is_last_word:
                    await self._write_singly(make, batch, error)
                    return
                self._events.emit("report.delayed", error=error, attempts=len(batch), retry_in=pause)
                await asyncio.sleep(pause)
                # Whoever was declared lost meanwhile has been dropped from what is held.
                batch = [one for one in batch if one.fence in self._held.fences]
                if not batch:
                    return
            else:
                self._conclude(batch, accepted)
                return

    async def _recorded_before(self, batch: Sequence[One], accepted: Sequence[int]) -> list[int]:
        """Find what was recorded by an earlier try, of which only the answer was lost."""
        known = set(accepted)
        refused = {one.fence: one.decision for one in batch if one.fence.job_id not in known}
        ended = await self._database.run(attempts.attempt_outcomes(list(refused)))
        return [fence.job_id for fence, outcome in ended if is_recorded(refused[fence], outcome)]

    async def _complete(self, batch: list[Ended]) -> list[Ended]:
        """End what a shorter way is enough for; answers those for which more has to be done."""
        bundled, left = self._bundles.divide(batch)
        if bundled:
            ending = [one for _, one in bundled]
            left += await self._try(ending, self._bundles.complete(bundled), by_clock=True)
        if left and attempts.are_plain(left):
            left = await self._try(left, self._complete_rows(left))
        return left

    async def _complete_rows(self, batch: list[Ended]) -> list[int]:
        await self._bundles.untie(one.fence for one in batch)
        return await self._database.run_read_committed(attempts.complete_jobs(batch))

    async def _try(
        self, batch: list[Ended], writing: Coroutine[Any, Any, list[int]], *, by_clock: bool = False
    ) -> list[Ended]:
        """Conclude what *writing* has ended of a batch; answers the rest, which is all where it fails."""
        try:
            accepted = await writing
        except HoldfastError:
            # Whatever is wrong is met again by the statement for everything, and dealt with there.
            return batch
        known = set(accepted)
        left = [one for one in batch if one.fence.job_id not in known]
        if left:
            batch = [one for one in batch if one.fence.job_id in known]
        self._conclude(batch, accepted, by_clock=by_clock)
        return left

    async def _write_singly(
        self, make: Callable[[Sequence[One]], Statement[list[int]]], batch: list[One], error: InputInvalid
    ) -> None:
        """Separate what the database refuses from the rest of its batch, and fail only that."""
        if len(batch) > 1:
            for one in batch:
                await self._write(make, [one])
            return
        text = storable(f"the outcome could not be stored: {error}")
        fail = Fail(error=text, reason=text)
        failed = Ended(batch[0].fence, fail, batch[0].seconds, batch[0].kind)
        if isinstance(batch[0], Ended):
            failed = msgspec.structs.replace(batch[0], decision=fail)
        await self._write(attempts.finish_jobs, [failed], is_last_word=True)

    def _conclude(
        self,
        batch: Sequence[Ended | Returned | Suspended],
        accepted: Sequence[int],
        *,
        by_clock: bool = False,
    ) -> None:
        fences = [one.fence for one in batch]
        self._held.drop(fences)
        self._permits.forget(fences, by_clock=by_clock)
        stale = list[Fence]()
        if len(accepted) < len(batch):
            known = set(accepted)
            stale = [fence for fence in fences if fence.job_id not in known]
            self._events.emit("attempts.stale", fences=stale)
        self._events.emit("attempts.reported", batch=batch, accepted=len(accepted), stale=stale)
        freed = set[str | None]()
        if self._frees:
            freed = {self._frees.pop(fence) for fence in fences if fence in self._frees}
            held = self._held.fences
            if len(self._frees) > len(held):
                # Who was declared lost meanwhile is reported by nobody.
                self._frees = {fence: queue for fence, queue in self._frees.items() if fence in held}
        self.acknowledged(freed)
