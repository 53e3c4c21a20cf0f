"""Claims jobs as fast as there is room for them, and sleeps when there is nothing."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from holdfast.model.job import ClaimedJob
from holdfast.rules.marks import Marks
from holdfast.rules.outcome import released
from holdfast.rules.rounds import Rounds
from holdfast.rules.vigil import Vigil
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import attempts, workers
from holdfast.store.attempts import Demand, Fence
from holdfast.store.database import Database
from holdfast.store.queues import queue_limits
from holdfast.worker.buffer import Buffer
from holdfast.worker.config import WorkerConfig
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held
from holdfast.worker.slots import Slots

# The buffer holds about this many seconds of work, and nothing stays in it longer than STALE.
AHEAD = 0.1
STALE = 1.0
# How often a claim starts from where nothing can have been passed over, in seconds.
LOOK_BEHIND = 0.5
# Looks after falling asleep, in seconds: an enqueue that saw us awake may commit a little later.
LOOKS = (0.02, 0.1, 0.3, 1.0, 2.0)
BUSY_BEFORE_AWAKE = 1.0
# How long a worker that keeps watch rests between two looks, in seconds.
WATCH = 0.005
# How often what is held is compared with the database, in seconds, although no answer was lost lately: the
# server may go on with a claim, and write it, long after its connection broke here.
RECONCILE_EVERY = 10.0
# How old the queues' limits may be where changes are announced, in seconds.
LIMITS_AGE = 60.0


class Claimer(Service):
    """Keeps slots and buffer filled.

    The buffer beyond the slots holds a tenth of a second of work at the present pace.  What a doubtful
    claim may have left behind is looked up and given back.
    """

    name = "claimer"

    def __init__(
        self,
        database: Database,
        config: WorkerConfig,
        *,
        kinds: tuple[str, ...],
        slots: Slots,
        buffer: Buffer,
        reporter: Reporter,
        held: Held,
        events: Events,
    ) -> None:
        super().__init__(events)
        self._database, self._config, self._kinds = database, config, kinds
        self._slots, self._buffer, self._reporter, self._held = slots, buffer, reporter, held
        self.worker_id = 0
        self.draining = False
        self._order = list(config.queues)
        self._limited: tuple[str, ...] | None = None
        self._limited_at = 0.0
        self._doubtful, self._reconciled_at = False, time.monotonic()
        self._asleep = False
        self._looks = 0
        self._busy_since: float | None = None
        self._vigil = Vigil()
        self._more, self._called = True, False
        self._pace, self._low = 0.0, 0
        self._paced_at, self._paced_done = time.monotonic(), 0
        self._marks, self._rounds = Marks(), Rounds()
        self._looks_behind, self._looked_at, self._look_pause = True, 0.0, LOOK_BEHIND
        slots.freed, reporter.settled = self._freed, self._reported

    def begin(self, worker_id: int) -> None:
        """Claim for this worker row from now on."""
        self.worker_id = worker_id
        self._limited, self._asleep = None, False
        self._marks, self._looks_behind = Marks(), True
        self.wake()

    def call(self) -> None:
        """Look now: there are new jobs."""
        self._vigil.call(time.monotonic())
        self._called = True
        self.wake()

    def reload(self) -> None:
        """Look at the queues' limits again before the next claim."""
        self._limited = None
        self.wake()

    def _freed(self) -> None:
        # Where the last claim took all there was, a free slot is no reason to look again.
        if self._more and len(self._buffer) <= self._low and not self.draining:
            self.wake()

    def _reported(self) -> None:
        # Only now has an ended job left its limit, and another may begin.
        if self._limited and not self.draining:
            self.wake()

    def _room(self) -> int:
        return min(self._config.prefetch, int(self._pace * AHEAD))

    async def turn(self) -> float:
        """Claim once; answer how long to rest."""
        if self.draining or not self.worker_id:
            return self._config.poll
        if self._doubtful or time.monotonic() - self._reconciled_at > RECONCILE_EVERY:
            await self.reconcile()
        queues = tuple(self._order)
        await self._limited_among(queues)
        self._measure_pace()
        self._give_back_stale()
        free = max(0, self._slots.count - self._slots.busy - len(self._buffer))
        wanted = max(free, free + self._room() - len(self._buffer))
        if wanted <= 0:
            self._more = True
            # Called in vain: it looks when a slot is free, so whoever enqueues need not call.
            if self._called:
                await self._set_asleep(False)
            return STALE if len(self._buffer) else self._config.poll
        # Queues take turns at the front, so that a full one does not starve the others.
        self._order.append(self._order.pop(0))
        claimed = await self.claim(queues, free=free, wanted=wanted)
        if claimed:
            self._looks = 0
            self._busy_since = self._busy_since or time.monotonic()
        self._more, self._called = len(claimed) >= wanted, False
        if self._more:
            await self._stay_awake()
            return 0.0
        return await self._rest_after_short_claim(bool(claimed))

    async def claim(self, queues: tuple[str, ...], *, free: int, wanted: int) -> list[ClaimedJob]:
        """Claim up to *wanted* jobs into the buffer, of which the first *free* are meant for free slots."""
        demand = Demand(worker_id=self.worker_id, queues=queues, kinds=self._kinds, limit=wanted, free=free)
        limited = await self._limited_among(queues)
        plain = tuple(queue for queue in queues if queue not in limited)
        self._doubtful = True
        claimed = await self._claim_plain(replace(demand, queues=plain)) if plain else []
        for queue in limited:
            # A buffered job would use up a limit without running: only free slots take from here.
            if len(claimed) < free:
                claimed += await self._claim_limited(replace(demand, free=free - len(claimed)), queue)
        self._doubtful = False
        if claimed:
            self.events.emit("jobs.claimed", count=len(claimed))
        return claimed

    async def _claim_plain(self, demand: Demand) -> list[ClaimedJob]:
        behind = await self._look(demand.queues) or self._looks_behind
        queues = self._rounds.asked(demand.queues, time.monotonic(), every_one=behind)
        after = self._marks.settled(queues) if behind else self._marks.tips(queues)
        claimed = await self._database.run(attempts.claim_jobs(replace(demand, queues=queues, after=after)))
        self._keep(demand, claimed)
        for job in claimed:
            self._marks.taken(job.queue, job.priority, job.place)
        self._looks_behind = len(claimed) < demand.limit
        self._rounds.answered(queues, {job.queue for job in claimed}, full=not self._looks_behind)
        return claimed

    async def _look(self, queues: tuple[str, ...]) -> bool:
        """Find out now and then from where nothing can be missed; answers whether to claim from there."""
        begun = time.monotonic()
        if begun - self._looked_at < self._look_pause:
            return False
        if self._marks.in_doubt:
            settled, candidate = self._marks.settled(queues), self._marks.candidate(queues)
            look = attempts.find_leftovers(queues, self._kinds, settled, candidate)
            self._marks.look(queues, await self._database.run(look))
        self._looked_at = time.monotonic()
        # What a look costs goes with what is dead behind the tips: it may take a twentieth of the time.
        self._look_pause = max(LOOK_BEHIND, 20 * (self._looked_at - begun))
        return True

    async def _claim_limited(self, demand: Demand, queue: str) -> list[ClaimedJob]:
        async with self._database.transaction() as connection:
            await self._database.run(attempts.lock_limits(queue), connection)
            claimed = await self._database.run(attempts.claim_limited(demand, queue), connection)
        self._keep(demand, claimed)
        return claimed

    def _keep(self, demand: Demand, claimed: list[ClaimedJob]) -> None:
        # An answer that comes after the worker was declared lost is about jobs that others have now.
        if demand.worker_id == self.worker_id:
            self._held.take(Fence(job.id, job.attempt) for job in claimed)
            self._buffer.put(claimed)

    async def _limited_among(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        if self._limited is None:
            found = await self._database.run(queue_limits(queues))
            self._limited = tuple(queue.name for queue in found if queue.limited and not queue.paused)
            self._limited_at = time.monotonic()
            # What was claimed ahead under the former rule has not begun: it waits its turn under the new one.
            changed = {queue.name for queue in found if queue.limited or queue.paused}
            self._put_back(self._buffer.give_up_of(changed), "its queue is paused or limited")
        return self._limited

    async def reconcile(self) -> None:
        """Give back what the database says we hold and we do not know of: the answer of a claim was lost."""
        if not self.worker_id:
            return
        # What is reported while the database answers is dropped by then, but was never strange to us.
        known = frozenset(self._held.fences)
        found = await self._database.run(attempts.held_attempts(self.worker_id))
        stray = [fence for fence in found if fence not in known]
        if stray:
            self._held.take(stray)
            self._reporter.put_back(stray, released("the answer of the claim was lost"))
        self._doubtful, self._reconciled_at = False, time.monotonic()

    async def _rest_after_short_claim(self, any_claimed: bool) -> float:
        if not self._config.listens:
            return self._jittered_poll()
        if self._vigil.look(time.monotonic(), found=any_claimed):
            await self._set_asleep(False)
            return WATCH
        if not self._asleep:
            await self._set_asleep(True)
            self._looks = 0
            return 0.0
        self._busy_since = None
        if any_claimed or self._looks < len(LOOKS):
            rest = LOOKS[min(self._looks, len(LOOKS) - 1)]
            self._looks += 1
            return rest
        return self._jittered_poll()

    async def _stay_awake(self) -> None:
        """Stop being notified once there has been work without a pause: we look anyway."""
        busy = self._busy_since is not None and time.monotonic() - self._busy_since > BUSY_BEFORE_AWAKE
        if busy:
            await self._set_asleep(False)

    async def _set_asleep(self, asleep: bool) -> None:
        if asleep != self._asleep:
            await self._database.run(workers.set_asleep(self.worker_id, asleep))
            self._asleep = asleep

    def _jittered_poll(self) -> float:
        # Without LISTEN nobody tells us of a change; with it, only who changes a row by hand does not.
        if not self._config.listens or time.monotonic() - self._limited_at > LIMITS_AGE:
            self._limited = None
        return self._config.poll * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls, guards nothing

    def _measure_pace(self) -> None:
        now = time.monotonic()
        passed = now - self._paced_at
        if passed >= 0.05:
            pace = (self._slots.done - self._paced_done) / passed
            self._pace = pace if pace < self._pace else (self._pace + pace) / 2
            self._paced_at, self._paced_done = now, self._slots.done
            self._low = self._room() // 2

    def _give_back_stale(self) -> None:
        self.give_back(STALE, "it waited too long in a worker's buffer")

    def give_back(self, older_than: float, reason: str) -> None:
        """Give buffered jobs back unspent."""
        self._put_back(self._buffer.give_up(older_than), reason)

    def _put_back(self, jobs: list[ClaimedJob], reason: str) -> None:
        if jobs:
            self._reporter.put_back([Fence(job.id, job.attempt) for job in jobs], released(reason))
