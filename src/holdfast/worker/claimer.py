"""Keeps the buffer filled: claims as soon as there is room, and sleeps when there is nothing."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Set

from holdfast.rules.rounds import turned
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store.database import Database
from holdfast.worker.buffer import Buffer
from holdfast.worker.bundles import Bundles
from holdfast.worker.config import WorkerConfig
from holdfast.worker.intake import NOTHING_MORE, Intake
from holdfast.worker.limits import Limited
from holdfast.worker.openings import Openings
from holdfast.worker.overtaking import Overtaking
from holdfast.worker.permits import Permits
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held
from holdfast.worker.sequences import Sequences
from holdfast.worker.slots import Slots
from holdfast.worker.wake_level import WakeLevel

# How many jobs are claimed at once, unless more slots are free, where some have concurrency keys: these are
# taken for as long as the claim is under way, so two quick claims serve more keys than a slow one does.
MOST_OF_KEYS = 400
# Nothing stays longer in the buffer, in seconds.
STALE = 1.0
# How old the queues' limits may be where changes are announced, in seconds.
LIMITS_AGE = 60.0
# By how much polls differ, so that workers do not look at the same moment.
SPREAD = 0.2


class Claimer(Service):
    """Decides when to claim by the *intake*, and how much.

    Its *openings* tell others of what it cannot take itself under limits.  *kept* is called when a claim has
    brought something.  Slots tell it what they have `freed`, the reporter what it has `reported`.
    """

    name = "claimer"

    def __init__(
        self,
        database: Database,
        config: WorkerConfig,
        *,
        slots: Slots,
        buffer: Buffer,
        permits: Permits,
        reporter: Reporter,
        held: Held,
        bundles: Bundles,
        events: Events,
        kept: Callable[[], object],
    ) -> None:
        super().__init__(events)
        self._config, self._slots, self._buffer = config, slots, buffer
        self._sequences = Sequences(buffer, permits, bundles)
        held.on_drop, reporter.completed = self._sequences.dropped, self._sequences.hand_on
        self._order = tuple(config.queues)
        # Without LISTEN nobody tells us of a change; with it, only who changes a row by hand does not.
        age = LIMITS_AGE if config.listens else config.poll * (1 - SPREAD)
        self.openings = Openings(database, self.wake)
        self.intake = Intake(
            database,
            limits_age=age,
            openings=self.openings,
            buffer=buffer,
            permits=permits,
            sequences=self._sequences,
            reporter=reporter,
            held=held,
            bundles=bundles,
            events=events,
            again=self.wake,
            kept=kept,
        )
        self._limits = self.intake.limits
        # Half of what was in the buffer after the last claim, with a permit and without.
        self._half, self._half_ahead = 0, 0
        # Whether jobs were announced since the last claim.
        self._called = False
        # A job that was announced alone, and its queue.
        self._announced: tuple[int, Collection[str]] | None = None
        # How often it was woken to look at its queues, how often before it last did, and when it will anyway.
        self._asked, self._answered, self._due_at = 0, 0, 0.0
        self._overtaking = Overtaking(buffer, config.queues)
        self._wake_level = WakeLevel(database, lambda: self._overtaking.below)
        self._prefetch = Prefetch(slots, buffer, config.prefetch)

    def begin(self, worker_id: int, kinds: tuple[str, ...]) -> None:
        """Claim for this worker row from now on, and just the kinds that it names."""
        self.intake.begin(worker_id, kinds)
        self._wake_level.begin(worker_id)
        self.wake()

    def wake(self) -> None:
        """Look at the queues at once."""
        self._asked += 1
        super().wake()

    def call(self, best: int = 0, queues: Collection[str] | None = None, job_id: int | None = None) -> None:
        """Look now: there are new jobs in these queues, None: in any, of priority *best* or worse.

        With *job_id* there is this one alone: where nothing else is to be looked for, only that is.
        """
        self._wake_level.called()
        self._overtaking.call(best, queues)
        self._called = True
        if job_id is None or queues is None or self._announced is not None:
            self.wake()
        else:
            self._announced = job_id, queues
            super().wake()

    @property
    def draining(self) -> bool:
        """True once nothing more is claimed."""
        return self.intake.is_closed

    def drain(self, reason: str = NOTHING_MORE) -> None:
        """Claim nothing more, and give back what has not begun."""
        self.intake.close(reason)

    def reconnected(self) -> None:
        """Look for what was announced while nobody listened; a failover may have lost what was noted."""
        self._wake_level.doubt()
        self.reload()
        if self._buffer.worst > 0:
            self.call()

    def reload(self) -> None:
        """Look at the queues' limits again before the next claim."""
        self._limits.forget()
        self.wake()

    def freed(self) -> None:
        """A slot has taken a job, or found none."""
        if self.is_woken and self._announced is None:
            # It is about to look at its queues.
            return
        # Where the last claim took all there was, and we are told of what comes, there is no reason to look.
        low, may_find = self._prefetch.low, self.intake.has_more or not self._config.listens
        has_room = may_find and self._buffer.waiting <= low and not self.draining
        if has_room or self._overtaking.has_room(low):
            self.wake()

    def reported(self, freed: Set[str | None]) -> None:
        """Ends are written, and that may have made room in these queues; see `Reporter`."""
        limited = self._limits.known or Limited()
        has_room = any(queue is None or queue in limited.capped for queue in freed)
        self.openings.note({queue for queue in freed if queue is not None})
        # Only now has an ended job left its limit, and another may be claimed: at half of the buffer and of
        # what waits for permits, or at once where a permit was let go.
        is_half = self._buffer.waiting <= self._half and (
            self._sequences.let_go if self._limits.has_keyed else self._buffer.ahead <= self._half_ahead
        )
        if limited.queues and (has_room or is_half or self.draining):
            self.wake()

    async def turn(self) -> float:
        """Claim once; answer how long to rest."""
        asked, announced, due_at = self._asked, self._announced, self._due_at
        # Unless this turn ends well the next one looks.
        self._announced, self._due_at = None, 0.0
        is_due = asked != self._answered or time.monotonic() >= due_at or self.intake.strays.are_due
        if announced is not None and not is_due and self._may_take_from(announced[1]):
            rest = min(await self._take(announced[0]), due_at - time.monotonic())
        else:
            rest = await self._look()
            self._answered = asked
        self._due_at = time.monotonic() + rest
        return rest

    def _may_take_from(self, queues: Collection[str]) -> bool:
        """Whether no other job is known to have a better right to a slot than one that is announced here.

        The last look took all there was, nothing is claimed ahead, and of all that comes we are told.  What a
        claim in a hurry passed over, or was enqueued by whoever saw us awake, a look finds that is due soon.
        """
        limited = self._limits.known
        return (
            self.intake.is_open
            and not self.intake.has_more
            and self._buffer.is_empty
            and self._slots.count > self._slots.busy
            and limited is not None
            and limited.queues.isdisjoint(queues)
            and self._wake_level.is_told_of_all
        )

    async def _take(self, job_id: int) -> float:
        """Claim one job that was announced; answers how long to rest at most."""
        if not await self.intake.claim_announced(job_id):
            # Somebody else was faster: that says nothing of the queues.
            return math.inf
        self._called = False
        self._wake_level.busy()
        return await self._rest_after_all(found=True)

    async def _look(self) -> float:
        """Look at the queues, and claim what there is; answers how long to rest."""
        intake = self.intake
        if intake.is_open:
            if intake.strays.are_due:
                await intake.strays.release(intake.worker_id)
            await self._limits.read(self._order)
            if self._overtaking.pause(self._prefetch.low) <= 0:
                await self._overtake()
        # A stop may have begun while the database answered.
        rest = await self._fill() if intake.is_open else self._config.poll
        if self.draining or self.openings.are_due:
            await self.openings.tell()
        if not (intake.is_open and self._config.listens):
            # Who hears nothing is told of nothing urgent.
            return rest
        if await self._wake_level.heed():
            self._overtaking.look_again()
        return min(rest, self._overtaking.pause(self._prefetch.low))

    async def _rest(self, seconds: float) -> None:
        # A turn that claimed has let the loop turn; the next claim is under way before the handlers go on.
        if seconds > 0:
            await super()._rest(seconds)

    async def _overtake(self) -> None:
        """Claim what was announced that is more urgent than jobs in the buffer."""
        self._called = False
        below, queues = self._overtaking.begin()
        room = max(1, self._prefetch.room - self._buffer.better_than(below))
        found, more = await self.intake.claim_better(below, queues, self._order, room=room)
        self._overtaking.end(found=found, more=more)
        if self._overtaking.watches:
            await self._wake_level.renew()

    async def _fill(self) -> float:
        """Claim what there is room for; answers how long to rest."""
        self._prefetch.measure()
        self.intake.release(STALE, "it waited too long in a worker's buffer")
        free, wanted, more = self._room()
        if wanted <= 0:
            self.intake.has_more = True
            # Called in vain: it looks when a slot is free, so whoever enqueues need not call.
            if self._called:
                await self._wake_level.called_in_vain()
            return self._until_stale(self._config.poll)
        found = await self._claim(free, wanted, more)
        if found:
            self._wake_level.busy()
        if self.intake.has_more or self._sequences.look_behind:
            await self._wake_level.stay_awake()
            return 0.0
        return self._until_stale(await self._rest_after_all(found=found))

    def _room(self) -> tuple[int, int, int]:
        """Return how many slots are free, and how many jobs to claim: for these and ahead of them.

        And how many more if they wait for the turn of their key.
        """
        free = max(0, self._slots.count - self._slots.busy - len(self._buffer))
        room = max(free, free + self._prefetch.room - len(self._buffer) - self._buffer.in_sequence)
        wanted = max(free, min(room, MOST_OF_KEYS)) if self._limits.has_keyed else room
        return free, wanted, room - wanted

    async def _claim(self, free: int, wanted: int, more: int) -> bool:
        queues = self._order
        # Also where the claim fails: it may be for the queue at the front.
        self._order = turned(queues)
        asked_at = time.monotonic()
        self._sequences.let_go = False
        in_a_row = self._prefetch.in_a_row
        claimed = await self.intake.claim(queues, free=free, wanted=wanted, more=more, in_a_row=in_a_row)
        self._sequences.brought(len(claimed), wanted, slots=self._slots.count, busy=self._slots.busy)
        if self.intake.has_more and len(queues) > 1:
            limits = self._limits.known
            self._order = turned(queues, {job.queue for job in claimed}, limits.queues if limits else queues)
        if self._config.listens:
            # Elsewhere nothing urgent is announced, and would wait for as long as the buffer lasts.
            self._prefetch.waited(time.monotonic() - asked_at)
        self._half, self._half_ahead = self._buffer.waiting // 2, self._buffer.ahead // 2
        self._called = False
        return bool(claimed)

    async def _rest_after_all(self, *, found: bool) -> float:
        """Return how long to rest after a claim that took all there was, be it nothing."""
        if found:
            # Handlers begin before anything else is done here.
            await asyncio.sleep(0)
        if not self._config.listens:
            # Nobody tells of what came meanwhile, or was passed over in a hurry.
            return 0.0 if found else self._jittered_poll()
        rest = await self._wake_level.rest(found=found)
        return self._jittered_poll() if rest is None else rest

    def _until_stale(self, rest: float) -> float:
        # What waits in the buffer too long is given back in time.
        now = time.monotonic()
        return min(rest, max(0.001, self._buffer.oldest(now + rest) + STALE - now))

    def _jittered_poll(self) -> float:
        return self._config.poll * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 - guards nothing
