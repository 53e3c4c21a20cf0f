"""Claims jobs into the buffer of a worker, and gives back what cannot stay there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Set
from dataclasses import replace

from holdfast.model.job import ClaimedJob
from holdfast.rules.marks import Places
from holdfast.runtime.events import Events
from holdfast.store import attempts
from holdfast.store.attempts import Demand, Fence
from holdfast.store.database import Database
from holdfast.worker.buffer import Buffer
from holdfast.worker.bundles import Bundles
from holdfast.worker.claims import Claims
from holdfast.worker.limits import Limited, Limits
from holdfast.worker.openings import Openings
from holdfast.worker.permits import Permits
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held
from holdfast.worker.sequences import Sequences
from holdfast.worker.strays import Strays

NOTHING_MORE = "the worker takes nothing more"


class Intake:
    """What one worker claims, and what of it goes back before it has begun.

    Nothing is claimed while there is no worker row to claim for, nor once it *is_closed*; what a claim
    brings that was under way then goes back as well.  *has_more* says whether the last claim took as much as
    it wanted; *again* is called when another one may take what that could not, *kept* when a claim has
    brought something.  Its *limits* are read again after *limits_age* seconds.  What a claim may have left
    behind whose answer was lost is given back by its *strays*.
    """

    def __init__(
        self,
        database: Database,
        *,
        limits_age: float,
        openings: Openings,
        buffer: Buffer,
        permits: Permits,
        sequences: Sequences,
        reporter: Reporter,
        held: Held,
        bundles: Bundles,
        events: Events,
        again: Callable[[], object],
        kept: Callable[[], object],
    ) -> None:
        self._database, self._events = database, events
        self._openings, self._again, self._kept = openings, again, kept
        self._buffer, self._permits, self._reporter, self._held = buffer, permits, reporter, held
        self.limits = Limits(database, limits_age, self._limits_changed)
        self._sequences = sequences
        self._bundles = bundles
        self._claims, self._kinds = Claims(database, bundles), tuple[str, ...]()
        self.worker_id = 0
        self.is_closed, self.has_more = False, True
        self.strays = Strays(database, held, bundles, reporter)

    def begin(self, worker_id: int, kinds: tuple[str, ...]) -> None:
        """Claim for this worker row from now on, and just the kinds that it names."""
        self.worker_id, self._kinds = worker_id, kinds
        self.limits.forget()
        self._openings.begin(worker_id, kinds)
        self._claims = Claims(self._database, self._bundles)

    def close(self, reason: str = NOTHING_MORE) -> None:
        """Claim nothing more, and give back what has not begun: others may have room for it now."""
        self.is_closed = True
        self.release(0.0, reason)

    @property
    def is_open(self) -> bool:
        """True while something may be claimed."""
        return bool(self.worker_id) and not self.is_closed

    @property
    def proven(self) -> dict[str, Places] | None:
        """What this worker has found out about settled places, to be noted for those who come later."""
        return self._claims.proven

    async def claim(
        self, queues: tuple[str, ...], *, free: int, wanted: int, more: int = 0, in_a_row: int = 0
    ) -> list[ClaimedJob]:
        """Claim up to *wanted* jobs into the buffer, of which the first *free* are meant for free slots.

        Beside them up to *more*, and *in_a_row* of one concurrency key, that wait for the turn of their key.
        """
        demand = self._demand(queues, limit=wanted, free=free)
        limited = await self.limits.read(queues)
        plain = tuple(queue for queue in queues if queue not in limited.queues)
        claimed, taken = list[ClaimedJob](), 0
        # Those without limits are asked together, when it is the turn of the first of them.
        for asked in dict.fromkeys((queue,) if queue in limited.queues else plain for queue in queues):
            queue, favoured = asked[0], False
            part = replace(demand, queues=asked, limit=wanted - taken, free=max(0, free - taken))
            if queue in limited.capped:
                # A buffered job would use up the limit without running: only free slots take from there.
                # Where others keep the buffer filled none is ever free, so at its turn one job goes in front.
                favoured = not part.free and queue == queues[0] and self._may_favour
                part = replace(part, limit=1 if favoured else part.free, more=self._permits.missing(queue))
            elif queue in limited.queues and part.limit > 0:
                part = self._beside_own(replace(part, more=more, in_a_row=in_a_row))
            if self.is_open and part.limit + part.more > 0:
                asked_at = time.monotonic()
                found = await self._ask(part, is_limited=queue in limited.queues)
                ahead = part.more + part.in_a_row + len(part.own)
                # Who has no slot free gets its share of keys, or what has to wait: that says nothing of room.
                if (sum(not job.ahead for job in found) if ahead else len(found)) < part.free:
                    self._openings.looked(queue, asked_at)
                taken += self._keep(part.worker_id, found, more=ahead, favoured=favoured)
                claimed += found
        self.has_more = taken >= wanted
        self._tell(claimed)
        return claimed

    async def claim_announced(self, job_id: int) -> bool:
        """Claim this job for a free slot, if it is one of a queue without limits that nobody has yet."""
        # Whoever begins anew meanwhile is another worker.
        worker_id = self.worker_id
        with self.strays:
            claimed = await self._claims.run(attempts.claim_announced(worker_id, self._kinds, job_id))
        self._keep(worker_id, claimed)
        # Behind the slot that is called, for nobody waits to hear of it.
        asyncio.get_running_loop().call_soon(self._tell, claimed)
        return bool(claimed)

    async def claim_better(
        self, below: int, queues: Collection[str], known: Collection[str], *, room: int
    ) -> tuple[bool, bool]:
        """Claim what is of a better priority than *below*, up to *room* jobs and one of each limited queue.

        *known* are all queues of this worker.  Answers whether there was any, and whether there may be more.
        """
        limited = await self.limits.read(tuple(known))
        plain = tuple(queue for queue in queues if queue not in limited.queues)
        demand = self._demand(plain, limit=room, free=0)
        claimed = await self._ask(demand, is_limited=False, below=below) if plain else []
        self._keep(demand.worker_id, claimed)
        more = len(claimed) == room
        for queue in queues:
            if queue in limited.queues and self.is_open:
                is_capped = queue in limited.capped
                best = await self._best_of(replace(demand, queues=(queue,)), is_capped=is_capped)
                more = more or any(job.priority < below for job in best)
                claimed += best
        self._tell(claimed)
        return any(job.priority < below for job in claimed), more

    async def _best_of(self, demand: Demand, *, is_capped: bool) -> list[ClaimedJob]:
        """Claim one job of a limited queue, since its claims cannot be told to leave the less urgent."""
        # With a permit that others want it begins next, whatever it is.
        limit = int(self._may_favour) if is_capped else 1
        demand = self._beside_own(replace(demand, limit=limit, more=int(is_capped)))
        found = await self._ask(demand, is_limited=True)
        self._keep(demand.worker_id, found, more=demand.more + len(demand.own), favoured=is_capped)
        return found

    def _beside_own(self, demand: Demand) -> Demand:
        """Have a claim bring what is more urgent than jobs of its key that wait here for their turn."""
        if not self._buffer.in_sequence:
            return demand
        return replace(demand, own=self._buffer.in_line_of(demand.queues[0]))

    def _demand(self, queues: tuple[str, ...], *, limit: int, free: int) -> Demand:
        return Demand(worker_id=self.worker_id, queues=queues, kinds=self._kinds, limit=limit, free=free)

    async def _ask(self, demand: Demand, *, is_limited: bool, below: int | None = None) -> list[ClaimedJob]:
        with self.strays:
            if is_limited:
                limited_claim = attempts.claim_limited(demand, self._bundles.kinds_for(demand))
                return await self._database.run_read_committed(limited_claim)
            return await self._claims.plain(demand, below)

    @property
    def _may_favour(self) -> bool:
        # One at a time: it begins next, and what is urgent waits for no more than that.
        return len(self._buffer) > 0 and not self._buffer.has_favoured

    def _tell(self, claimed: Collection[ClaimedJob]) -> None:
        if claimed:
            self._events.emit("jobs.claimed", count=len(claimed))

    def _keep(
        self, worker_id: int, claimed: list[ClaimedJob], *, more: int = 0, favoured: bool = False
    ) -> int:
        """Take over what a claim brought that asked for *more* ahead; answers for how many slots."""
        # An answer that comes after the worker was declared lost is about jobs that others have now.
        if worker_id != self.worker_id:
            return 0
        self._bundles.took(claimed)
        before = len(self._buffer)
        held = [job for job in claimed if job.is_held]
        new = [job for job in claimed if not job.is_held] if held else claimed
        if self.is_closed:
            # The claim was under way when the worker was told to take nothing more.
            self._held.take(Fence(job.id, job.attempt) for job in new)
            self._release(new, NOTHING_MORE)
            return 0
        if more or held:
            for job in held:
                self._permits.granted(job, self._let_go, favoured=favoured)
            new, ahead = self._sequences.admit(new)
            self._held.take(self._buffer.put_ahead(ahead))
        self._held.take(self._buffer.put(new, favoured=favoured))
        if claimed:
            self._kept()
        return len(self._buffer) - before

    def _let_go(self, queue: str) -> None:
        """Claim what a permit is for that nobody uses, or tell those who may."""
        self._openings.note({queue})
        self._again()

    def _limits_changed(self, limited: Limited, stricter: Set[str]) -> None:
        self._permits.obey(limited)
        # What was claimed ahead under the former rule has not begun: it waits its turn under the new one.
        self._release(self._buffer.give_up_of(stricter), "its queue is paused or limited")

    def release(self, older_than: float, reason: str) -> None:
        """Give buffered jobs back unspent that have waited at least so many seconds."""
        self._release(self._buffer.give_up(older_than), reason)

    def _release(self, jobs: list[ClaimedJob], reason: str) -> None:
        if jobs:
            self._reporter.release([Fence(job.id, job.attempt) for job in jobs], reason)
