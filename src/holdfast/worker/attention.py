"""Keeps an eye on what the worker holds: cancels asked for, handlers begun from the buffer.

It also registers a worker anew that was declared lost, as soon as `Attention.revive` is set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import attempts
from holdfast.store.database import Database
from holdfast.worker.buffer import Buffer
from holdfast.worker.bundles import Bundles
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Cause, Held

# A buffered job that has run this long is worth a write that shows it as running, in seconds.
WORTH_MARKING = 1.0


class Attention(Service):
    """Takes a turn every second, asking the database nothing while nothing is due, and at once when woken.

    *revive* registers a worker anew that was declared lost: a turn that fails is tried again.
    """

    name = "attention"

    def __init__(
        self,
        database: Database,
        held: Held,
        bundles: Bundles,
        buffer: Buffer,
        reporter: Reporter,
        events: Events,
    ) -> None:
        super().__init__(events)
        self._database, self._held, self._bundles = database, held, bundles
        self._buffer, self._reporter = buffer, reporter
        self.revive: Callable[[], Awaitable[None]] | None = None
        # How often it was woken, and how often when it last looked for cancels with success.
        self._asked, self._answered = 0, 0
        # Whether a claim may be under way since before the last wake-up.
        self._looks_after_claim = False

    def wake(self) -> None:
        """Look for cancels at the next turn, at once."""
        self._asked += 1
        self._looks_after_claim = True
        super().wake()

    def claimed(self) -> None:
        """Look once more: of what a claim has brought that was under way nothing was known the last time."""
        if self._looks_after_claim:
            self.wake()
            self._looks_after_claim = False

    async def turn(self) -> float:
        """Revive a lost worker, mark what has begun, pass cancels on."""
        if self.revive is not None:
            await self.revive()
            self.revive = None
        await self._mark_started()
        if (asked := self._asked) != self._answered:
            if self._held.fences:
                await self._pass_cancels_on()
            self._answered = asked
        return WORTH_MARKING

    async def _mark_started(self) -> None:
        begun = [
            running
            for running in tuple(self._held.running.values())
            if not running.marked and running.seconds > WORTH_MARKING
        ]
        if begun:
            await self._bundles.untie(running.fence for running in begun)
            await self._database.run(
                attempts.start_jobs([(running.fence, running.seconds) for running in begun])
            )
            for running in begun:
                running.marked = True

    async def _pass_cancels_on(self) -> None:
        for fence in await self._database.run(attempts.cancel_requests(self._held.fences)):
            running = self._held.running.get(fence)
            if running is not None and running.cause is None:
                self.events.emit("cancel.delivered", fence=fence)
                running.interrupt(Cause.CANCEL)
            elif running is None and self._buffer.remove(fence.job_id, fence.attempt):
                # Given back, it ends as cancelled: put_back_jobs sees that a cancel was requested.
                self._reporter.release([fence], "cancel requested before its handler began")
