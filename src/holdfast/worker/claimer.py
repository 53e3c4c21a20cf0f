"""Claims jobs as fast as there is room for them, and sleeps when there is nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from holdfast.model.job import ClaimedJob
from holdfast.rules.marks import Places
from holdfast.rules.outcome import released
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import attempts
from holdfast.store.attempts import Demand, Fence
from holdfast.store.database import Database
from holdfast.worker.ahead import Ahead
from holdfast.worker.buffer import Buffer
from holdfast.worker.claims import Claims
from holdfast.worker.config import WorkerConfig
from holdfast.worker.limits import Limits
from holdfast.worker.openings import Openings
from holdfast.worker.overtaking import Overtaking
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held
from holdfast.worker.slots import Slots
from holdfast.worker.slumber import Slumber
from holdfast.worker.strays import Strays

# How many jobs are claimed at once, unless more slots are free, where some have concurrency keys: these are
# taken for as long as the claim is under way, so two quick claims serve more keys than a slow one does.
MOST_OF_KEYS = 400
# Nothing stays longer in the buffer, in seconds.
STALE = 1.0
# How old the queues' limits may be where changes are announced, in seconds.
LIMITS_AGE = 60.0
NOTHING_MORE = "the worker takes nothing more"
# By how much polls differ, so that workers do not look at the same moment.
SPREAD = 0.2


class Claimer(Service):
    """Keeps slots and buffer filled.

    What a claim may have left behind whose answer was lost is given back by its *strays*.  Its *openings*
    tell others of what it cannot take itself under limits.
    """

    name = "claimer"

    def __init__(
        self,
        database: Database,
        config: WorkerConfig,
        *,
        slots: Slots,
        buffer: Buffer,
        reporter: Reporter,
        held: Held,
        events: Events,
    ) -> None:
        super().__init__(events)
        self._database, self._config, self._kinds = database, config, tuple[str, ...]()
        self._slots, self._buffer, self._reporter, self._held = slots, buffer, reporter, held
        self.worker_id = 0
        self.draining = False
        self._order = list(config.queues)
        # Without LISTEN nobody tells us of a change; with it, only who changes a row by hand does not.
        age = LIMITS_AGE if config.listens else config.poll * (1 - SPREAD)
        self._limits = Limits(database, age)
        self._limits.changed = self._limits_changed
        self._half, self._half_ahead = 0, 0
        self.strays = Strays(database, held, reporter)
        self._more, self._called = True, False
        self._overtaking, self.openings = Overtaking(buffer, config.queues), Openings(database, self.wake)
        self._claims, self._slumber = Claims(database), Slumber(database, lambda: self._overtaking.below)
        self._ahead = Ahead(slots, buffer, config.prefetch)
        slots.freed, reporter.settled = self._freed, self._reported

    def begin(self, worker_id: int, kinds: tuple[str, ...]) -> None:
        """Claim for this worker row from now on, and just the kinds that it names."""
        self.worker_id, self._kinds = worker_id, kinds
        self._limits.forget()
        self._claims = Claims(self._database)
        self._slumber.begin(worker_id)
        self.wake()

    def call(self, best: int = 0, queues: Collection[str] | None = None) -> None:
        """Look now: there are new jobs in these queues, None: in any, of priority *best* or worse."""
        self._slumber.called()
        self._overtaking.call(best, queues)
        self._called = True
        self.wake()

    def drain(self, reason: str = NOTHING_MORE) -> None:
        """Claim nothing more, and give back what has not begun: others may have room for it now."""
        self.draining = True
        self.give_back(0.0, reason)

    def reconnected(self) -> None:
        """Look for what was announced while nobody listened; a failover may have lost what was noted."""
        self._slumber.doubt()
        self.reload()
        if self._buffer.worst > 0:
            self.call()

    def reload(self) -> None:
        """Look at the queues' limits again before the next claim."""
        self._limits.forget()
        self.wake()

    def _freed(self) -> None:
        # Where the last claim took all there was, a free slot is no reason to look again.
        low = self._ahead.low
        if (self._more and len(self._buffer) <= low and not self.draining) or self._overtaking.has_room(low):
            self.wake()

    def _reported(self, freed: Set[str | None]) -> None:
        limited = self._limits.limited or {}
        has_room = any(queue is None or limited.get(queue) for queue in freed)
        self.openings.note({queue for queue in freed if queue is not None})
        # Only now has an ended job left its limit, and another may be claimed: at half of the buffer and of
        # what waits for permits, or at once where a permit was let go.
        is_half = len(self._buffer) <= self._half and (
            self._limits.has_keyed or self._buffer.ahead <= self._half_ahead
        )
        if limited and (has_room or is_half or self.draining):
            self.wake()

    @property
    def proven(self) -> dict[str, Places] | None:
        """What this worker has found out about settled places, to be noted for those who come later."""
        return self._claims.proven

    @property
    def _may_claim(self) -> bool:
        return bool(self.worker_id) and not self.draining

    async def turn(self) -> float:
        """Claim once; answer how long to rest."""
        if self._may_claim:
            if self.strays.are_due:
                await self.strays.give_back(self.worker_id)
            await self._limits.read(self._order)
            if self._overtaking.pause(self._ahead.low) <= 0:
                await self._overtake()
        # A stop may have begun while the database answered.
        rest = await self._fill() if self._may_claim else self._config.poll
        if self.draining or self.openings.are_due:
            await self.openings.tell()
        if not (self._may_claim and self._config.listens):
            # Who hears nothing is told of nothing urgent.
            return rest
        if await self._slumber.heed():
            self._overtaking.look_again()
        return min(rest, self._overtaking.pause(self._ahead.low))

    async def _rest(self, seconds: float) -> None:
        # A turn that claimed has let the loop turn; the next claim is under way before the handlers go on.
        if seconds > 0:
            await super()._rest(seconds)

    async def _overtake(self) -> None:
        """Claim what was announced that is more urgent than jobs in the buffer."""
        self._called = False
        below, queues = self._overtaking.begin()
        limited = await self._limits.read(self._order)
        plain = tuple(queue for queue in queues if queue not in limited)
        room = max(1, self._ahead.room - self._buffer.better_than(below))
        demand = Demand(worker_id=self.worker_id, queues=plain, kinds=self._kinds, limit=room, free=0)
        claimed = await self._ask(demand, is_limited=False, below=below) if plain else []
        self._keep(demand, claimed)
        more = len(claimed) == room
        for queue in queues:
            if queue in limited and self._may_claim:
                best = await self._best_of(replace(demand, queues=(queue,)), is_capped=limited[queue])
                more = more or any(job.priority < below for job in best)
                claimed += best
        self._overtaking.end(found=any(job.priority < below for job in claimed), more=more)
        if self._overtaking.watches:
            await self._slumber.renew()
        if claimed:
            self.events.emit("jobs.claimed", count=len(claimed))

    async def _best_of(self, demand: Demand, *, is_capped: bool) -> list[ClaimedJob]:
        """Claim one job of a limited queue, since its claims cannot be told to leave the less urgent."""
        # With a permit that others want it begins next, whatever it is.
        limit = int(self._may_favour) if is_capped else 1
        demand = replace(demand, limit=limit, more=int(is_capped))
        found = await self._ask(demand, is_limited=True)
        self._keep(demand, found, favoured=is_capped)
        return found

    async def _fill(self) -> float:
        self._ahead.measure()
        self.give_back(STALE, "it waited too long in a worker's buffer")
        free = max(0, self._slots.count - self._slots.busy - len(self._buffer))
        wanted = max(free, free + self._ahead.room - len(self._buffer))
        if self._limits.has_keyed:
            wanted = max(free, min(wanted, MOST_OF_KEYS))
        if wanted <= 0:
            self._more = True
            # Called in vain: it looks when a slot is free, so whoever enqueues need not call.
            if self._called:
                await self._slumber.called_in_vain()
            return self._until_stale(self._config.poll)
        queues = tuple(self._order)
        # Queues take turns at the front, so that a full one does not starve the others.
        self._order.append(self._order.pop(0))
        asked_at = time.monotonic()
        claimed = await self.claim(queues, free=free, wanted=wanted)
        if self._config.listens:
            # Elsewhere nothing urgent is announced, and would wait for as long as the buffer lasts.
            self._ahead.waited(time.monotonic() - asked_at)
        self._half, self._half_ahead = len(self._buffer) // 2, self._buffer.ahead // 2
        self._called = False
        if claimed:
            self._slumber.busy()
        if self._more:
            await self._slumber.stay_awake()
            return 0.0
        if claimed:
            # Handlers begin before anything else is done here.
            await asyncio.sleep(0)
        rest = await self._slumber.rest(found=bool(claimed)) if self._config.listens else None
        rest = self._jittered_poll() if rest is None else rest
        return self._until_stale(rest)

    def _until_stale(self, rest: float) -> float:
        # What waits in the buffer too long is given back in time.
        now = time.monotonic()
        return min(rest, max(0.001, self._buffer.oldest(now + rest) + STALE - now))

    @property
    def _may_favour(self) -> bool:
        # One at a time: it begins next, and what is urgent waits for no more than that.
        return len(self._buffer) > 0 and not self._buffer.has_favoured

    async def claim(self, queues: tuple[str, ...], *, free: int, wanted: int) -> list[ClaimedJob]:
        """Claim up to *wanted* jobs into the buffer, of which the first *free* are meant for free slots."""
        demand = Demand(worker_id=self.worker_id, queues=queues, kinds=self._kinds, limit=wanted, free=free)
        limited = await self._limits.read(queues)
        plain = tuple(queue for queue in queues if queue not in limited)
        claimed, taken = list[ClaimedJob](), 0
        # Those without limits are asked together, when it is the turn of the first of them.
        for asked in dict.fromkeys((queue,) if queue in limited else plain for queue in queues):
            open_slots, most = max(0, free - taken), wanted - taken
            is_turn, more = False, 0
            if limited.get(asked[0]):
                # A buffered job would use up the limit without running: only free slots take from there.
                # Where others keep the buffer filled none is ever free, so at its turn one job goes in front.
                is_turn = not open_slots and asked[0] == queues[0] and self._may_favour
                most, more = 1 if is_turn else open_slots, self._more_of(asked[0])
            if self._may_claim and most + more > 0:
                rest = replace(demand, queues=asked, free=open_slots, limit=most, more=more)
                asked_at = time.monotonic()
                found = await self._ask(rest, is_limited=asked[0] in limited)
                if len(found) < most + more:
                    self.openings.looked(asked[0], asked_at)
                taken += self._keep(rest, found, favoured=is_turn)
                claimed += found
        self._more = taken >= wanted
        if claimed:
            self.events.emit("jobs.claimed", count=len(claimed))
        return claimed

    async def _ask(self, demand: Demand, *, is_limited: bool, below: int | None = None) -> list[ClaimedJob]:
        with self.strays.claiming():
            if is_limited:
                limited_claim = attempts.claim_limited(demand, demand.queues[0])
                return await self._database.run_read_committed(limited_claim)
            return await self._claims.plain(demand, below)

    def _more_of(self, queue: str) -> int:
        """Return how many jobs to claim ahead of permits: none before half of them have had theirs."""
        room = min(self._slots.turnover.room(queue), self._config.prefetch)
        missing = room - self._buffer.ahead_of(queue)
        return missing if 2 * missing >= room else 0

    def _keep(self, demand: Demand, claimed: list[ClaimedJob], *, favoured: bool = False) -> int:
        """Take over what a claim brought; answers for how many slots."""
        # An answer that comes after the worker was declared lost is about jobs that others have now.
        if demand.worker_id != self.worker_id:
            return 0
        before = len(self._buffer)
        held = [job for job in claimed if job.is_held]
        new = [job for job in claimed if not job.is_held] if held else claimed
        self._held.take(Fence(job.id, job.attempt) for job in new)
        if self.draining:
            # The claim was under way when the worker was told to take nothing more.
            self._put_back(new, NOTHING_MORE)
            return 0
        if demand.more or held:
            self._permitted(held, favoured=favoured)
            self._buffer.put_ahead(job for job in new if job.ahead)
            new = [job for job in new if not job.ahead]
        self._buffer.put(new, favoured=favoured)
        return len(self._buffer) - before

    def _permitted(self, held: list[ClaimedJob], *, favoured: bool) -> None:
        """Take over permits for jobs that were claimed ahead of them."""
        for job in held:
            if self._buffer.permit(job, favoured=favoured):
                continue
            # It was handed one meanwhile: there is one too many, once that is reported.
            reported = self._held.permit(Fence(job.id, job.attempt))
            if reported is None:
                self.wake()
            else:
                reported.add_done_callback(lambda _: self.wake())

    def _limits_changed(self, limited: Mapping[str, bool], stricter: Set[str]) -> None:
        self._slots.turnover.watch(queue for queue, is_capped in limited.items() if is_capped)
        self._slots.limited = limited.keys()
        # What was claimed ahead under the former rule has not begun: it waits its turn under the new one.
        self._put_back(self._buffer.give_up_of(stricter), "its queue is paused or limited")

    def _jittered_poll(self) -> float:
        return self._config.poll * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 - guards nothing

    def give_back(self, older_than: float, reason: str) -> None:
        """Give buffered jobs back unspent."""
        self._put_back(self._buffer.give_up(older_than), reason)

    def _put_back(self, jobs: list[ClaimedJob], reason: str) -> None:
        if jobs:
            self._reporter.put_back([Fence(job.id, job.attempt) for job in jobs], released(reason))
