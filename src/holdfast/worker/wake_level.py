"""Of which jobs a worker is told, when it looks by itself, and how long it rests when it has found none."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.rules.polling import Polling
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.store.workers import ASLEEP

# Looks after falling asleep, in seconds: an enqueue that saw us awake may commit a little later.
LOOKS = (0.02, 0.1, 0.3)
# The looks that follow while a transaction runs that may have enqueued then, in seconds.
LATE = 0.5
# How long after falling asleep these transactions are first asked for: before the last of the looks, which
# thus sees what they committed.
SETTLED = sum(LOOKS[:-1])
BUSY_BEFORE_AWAKE = 1.0
# What the database says may be something else than what was written last.
UNKNOWN = -1
# How long a worker that keeps watch rests between two looks, in seconds.
WATCH = 0.005


class WakeLevel:
    """Keeps the note in the database that says below which priority this worker wants to be told of jobs.

    Asleep, that is `ASLEEP`: of all jobs.  Awake, it is what *useful* says: of those that are better than
    something in the buffer, of none where the worker looks by itself.  An enqueue that commits late may have
    read an earlier note, so who falls asleep looks again at once and a few times more, and then for as long
    as there is a transaction that may have.
    """

    def __init__(self, database: Database, useful: Callable[[], int]) -> None:
        self._database, self._useful = database, useful
        self._worker_id = 0
        self._noted, self._noted_at = 0, 0.0
        # How often it has looked since it fell asleep.
        self._looks = 0
        # All transactions with a smaller number may have seen us awake; 0: they are over, None: not asked.
        self._following: int | None = None
        # Whether it has looked since they were, and when to ask for them next.
        self._has_seen_all, self._ask_at = False, 0.0
        self._busy_since: float | None = None
        self._polling = Polling()

    def begin(self, worker_id: int) -> None:
        """Keep the note of this worker row from now on; it is awake."""
        self._worker_id, self._noted = worker_id, 0

    def called(self) -> None:
        """A notification has come."""
        self._polling.call(time.monotonic())

    @property
    def is_told_of_all(self) -> bool:
        """True while this worker is to be told of all jobs, and has no reason to keep watch instead.

        Soon after it fell asleep it is not: a job may be there of which whoever saw it awake said nothing.
        """
        is_settled = self._noted == ASLEEP and self._has_seen_all
        return is_settled and not (self._polling.kept or self._polling.is_due(time.monotonic()))

    def busy(self) -> None:
        """There was something to claim."""
        self._looks = 0
        self._busy_since = self._busy_since or time.monotonic()

    async def stay_awake(self) -> None:
        """Be told of less once there has been work without a pause: we look anyway."""
        if self._busy_since is not None and time.monotonic() - self._busy_since > BUSY_BEFORE_AWAKE:
            await self.wake_up()

    async def rest(self, *, found: bool) -> float | None:
        """Return how many seconds to rest after a claim that took all there was; None: until called."""
        if self._polling.look(time.monotonic(), found=found):
            await self.wake_up()
            return WATCH
        if self._noted != ASLEEP:
            await self._note(ASLEEP)
            self._looks, self._following, self._has_seen_all = 0, None, False
            self._ask_at = self._noted_at + SETTLED
            return 0.0
        self._busy_since = None
        self._has_seen_all = self._following == 0
        if not self._has_seen_all and time.monotonic() >= self._ask_at:
            await self._ask_who_runs()
        if found or self._looks < len(LOOKS):
            self._looks += 1
            return LOOKS[min(self._looks, len(LOOKS)) - 1]
        if self._has_seen_all:
            return None
        # What the last of them committed is yet to be seen.
        return LATE if self._following != 0 else 0.0

    async def _ask_who_runs(self) -> None:
        """Find out whether a transaction still runs that may have enqueued while we were awake."""
        oldest, following = await self._database.run(workers.running_transactions())
        self._following = self._following or following
        if oldest >= self._following:
            self._following = 0
        self._ask_at = time.monotonic() + LATE

    async def wake_up(self) -> None:
        """Be told of no more than is of use to somebody awake."""
        if self._noted == ASLEEP:
            await self.renew()

    async def called_in_vain(self) -> None:
        """Be told of no more than is of use now; what was noted while awake stands for a second, though."""
        if self._noted == ASLEEP or time.monotonic() - self._noted_at > BUSY_BEFORE_AWAKE:
            await self.renew()

    async def heed(self) -> bool:
        """Be told of more where worse jobs are here than was noted; True: some may have been missed."""
        is_more = self._useful() > self._noted
        if is_more:
            await self.renew()
        return is_more

    async def renew(self) -> None:
        """Be told of just what is of use now."""
        await self._note(self._useful())

    def doubt(self) -> None:
        """The note may be lost: write it again."""
        self._noted = UNKNOWN

    async def _note(self, below: int) -> None:
        if below != self._noted:
            # The answer may not come although it is written.
            self.doubt()
            await self._database.run(workers.wake_below(self._worker_id, below))
            self._noted, self._noted_at = below, time.monotonic()
