"""Permits of queues with a limit for the fleet, and how they go from job to job without leaving the worker.

A job of such a queue has a permit before it begins, and permits are claimed for free slots alone.  One that
went back to the database between two jobs would cost two commits, so it is handed on:

1. The `Intake` claims some jobs *ahead* of permits, as many as `missing` says.  They wait in the `Buffer`
   beside the others, where no slot gets them.
2. A slot whose attempt has ended asks `hand_on` for an heir: the best of them, which may begin at once.
3. The `Reporter` writes that end and the heir's permit by one statement, so in the database the permit is
   never free and never had twice.  Until it has (`unrecorded`), all that becomes of the heir waits: its end
   for its turn among those that share permits, its own transaction in `AttemptPort.settle`.
4. Without an heir the permit is free once the end is written.  A claim brings it back then, for a job that
   waits here before any other: `granted`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Set

from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import LONGEST_AGO, Fence
from holdfast.worker.buffer import Buffer
from holdfast.worker.limits import Limited
from holdfast.worker.running import Recorded
from holdfast.worker.turnover import Turnover


class Permits:
    """Hands permits on, and knows which of them the database still believes with the one before.

    *limited* are the queues with limits; those of them that have permits are watched by *turnover*.  At most
    *most_ahead* jobs of each are claimed ahead.
    """

    def __init__(self, buffer: Buffer, most_ahead: int) -> None:
        self._buffer, self._most_ahead = buffer, most_ahead
        self.limited: Set[str] = frozenset()
        self.turnover = Turnover()
        # Who was handed a permit by whom and when, as long as the database does not know of it.
        self._heirs: dict[Fence, tuple[Fence, float]] = {}
        self._unrecorded: dict[Fence, asyncio.Future[Recorded]] = {}

    def obey(self, limited: Limited) -> None:
        """Heed the limits that hold from now on."""
        self.limited = limited.queues
        self.turnover.watch(limited.capped)

    def missing(self, queue: str) -> int:
        """Return how many jobs to claim ahead: none before half of them have had a permit."""
        room = min(self.turnover.room(queue), self._most_ahead)
        missing = room - self._buffer.ahead_of(queue)
        return missing if 2 * missing >= room else 0

    def hand_on(self, giver: Fence, queue: str, *, idle: int, is_over: bool) -> Fence | None:
        """Give the permit of an attempt that has ended to one that was claimed ahead; None: it is let go.

        It is let go unless the job *is_over* for good, where nothing of its queue waits ahead, and where
        other jobs are next to run in all *idle* slots.  The end counts towards the pace of the queue, unless
        the permit is let go while the buffer has a job for each of these slots.
        """
        job = self._buffer.hand_on(queue, idle) if is_over else None
        # Where others are next to run, the queue would gain nothing by more of its jobs here.
        if job is not None or len(self._buffer) < idle:
            self.turnover.count(queue)
        if job is None:
            return None
        heir = Fence(job.id, job.attempt)
        self.follow(giver, heir)
        return heir

    def follow(self, giver: Fence, heir: Fence) -> None:
        """Have all that becomes of *heir* wait for the end of *giver*: until then it is `unrecorded`."""
        self._heirs[giver] = heir, time.monotonic()
        self._unrecorded[heir] = asyncio.get_running_loop().create_future()

    def unrecorded(self, heir: Fence) -> asyncio.Future[Recorded] | None:
        """Return what is done once the database knows of what was handed on; None: it does."""
        return self._unrecorded.get(heir)

    def forget(self, givers: Iterable[Fence], *, by_clock: bool = False) -> None:
        """Let nobody wait any more for what these have handed on: it is recorded, or their lease is lost.

        Told *by_clock*, and soon, they are told to have ended when they did; else at some time until now.
        """
        if not self._heirs:
            return
        now = time.monotonic()
        vaguely, exactly = Recorded(now, is_exact=False), Recorded(now, is_exact=True)
        for giver in givers:
            if giver in self._heirs:
                heir, handed_on = self._heirs.pop(giver)
                is_exact = by_clock and now - handed_on < LONGEST_AGO
                self._unrecorded.pop(heir).set_result(exactly if is_exact else vaguely)

    def granted(self, job: ClaimedJob, let_go: Callable[[str], object], *, favoured: bool) -> None:
        """Take over a permit that the database has given to a job which was claimed ahead.

        If that was handed one meanwhile, one is too many: *let_go* is called with its queue once that is
        recorded.
        """
        if self._buffer.permit(job, favoured=favoured):
            return
        recorded = self.unrecorded(Fence(job.id, job.attempt))
        if recorded is None:
            let_go(job.queue)
        else:
            recorded.add_done_callback(lambda _: let_go(job.queue))
