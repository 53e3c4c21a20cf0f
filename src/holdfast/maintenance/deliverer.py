"""Makes deliveries of what ended: each with a job that carries it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.maintenance.duty import Duty
from holdfast.model.delivery import carrier
from holdfast.store import deliveries, feed, jobs
from holdfast.store.deliveries import Horizon, PlannedDeliveries

BATCH = 1000
LOOK_EVERY = 1.0
# Where the last look met writers, nearly always over by now.
LOOK_AGAIN = 0.05
# An endpoint that is added wakes the duty; this is for a wake-up that got lost.
IDLE = 60.0
TIMEOUT = "30s"
# How many seconds of history a look reads: fewer while it catches up on busy ones, more on quiet ones.
WINDOW = 60.0
SHORTEST_WINDOW, LONGEST_WINDOW = 0.01, 86_400.0
# A new leader does not know how the server's clock went before: so far back it looks, in seconds.
BEFORE_A_TERM = 60.0
# Writers that hold everything up for longer, in seconds, are named.
PATIENCE = 60.0


@dataclass(slots=True)
class Look:
    """What a look showed, and when it was taken on this machine's own count."""

    horizon: Horizon
    taken_at: float
    reported: bool = False

    def set_back(self, later: Look) -> timedelta:
        """Return by how much the server's clock may have been set back between two looks."""
        passed = timedelta(seconds=later.taken_at - self.taken_at)
        return max(timedelta(0), passed - (later.horizon.now - self.horizon.now))


class Deliverer(Duty):
    """Looks once a second at what ended, while an endpoint wants to be told of anything.

    It reads history only up to a moment whose writers are all over, so nothing is missed, and its place is
    part of the transaction that makes the deliveries, so nothing is told twice.  The writers that one look
    meets are waited for by their numbers, however long they take: whoever passed one by would lose its end.
    They take long only where something holds them up, and that is said aloud instead.
    Where the server's clock was set back, what ends has times that were looked at before: it looks back as
    far.  However much history it has to catch up on, each look reads a bounded part of it.
    """

    name = "deliverer"
    in_no_hurry = True

    def begin_term(self) -> None:
        """Begin anew: how the server's clock went while others led is not known here."""
        self._last: Look | None = None
        self._awaited: Look | None = None
        self._goes_on = False
        self._window = WINDOW

    async def lead(self, term: int) -> float:
        """Make the deliveries of one look."""
        taken_at = time.monotonic()
        horizon = await self.database.run(deliveries.delivery_horizon())
        if horizon is None:
            self._awaited = None
            return IDLE
        look = Look(horizon, taken_at)
        complete = self._complete(look)
        if complete is None:
            return LOOK_AGAIN if self._waited(look) < LOOK_EVERY else LOOK_EVERY
        # One that went back goes on from where it came to: so many may have ended at one moment.
        back = 0.0 if self._goes_on else self._set_back(look)
        planned = await self._plan(term, complete, back)
        if not self._goes_on:
            self._last = look
        self._goes_on, self._window = planned.more, self._next_window(planned)
        if planned.made:
            self.events.emit("deliveries.made", count=len(planned.made))
        return 0.0 if planned.more else LOOK_EVERY

    async def _plan(self, term: int, complete: datetime, back: float) -> PlannedDeliveries:
        async with self.database.transaction() as connection:
            await self.database.run(feed.plan_by_time(TIMEOUT), connection)
            planned = await self.database.run(
                deliveries.plan_deliveries(term, complete, BATCH, back=back, window=self._window), connection
            )
            if planned.made:
                handles = await self.database.run(
                    jobs.enqueue_jobs([carrier(*one) for one in planned.made]), connection
                )
                ids, carriers = [one for one, _ in planned.made], [handle.id for handle in handles]
                await self.database.run(deliveries.carry_deliveries(ids, carriers), connection)
        return planned

    def _next_window(self, planned: PlannedDeliveries) -> float:
        if planned.dense:
            return max(SHORTEST_WINDOW, self._window / 2)
        return min(LONGEST_WINDOW, self._window * 2) if planned.more else WINDOW

    def _complete(self, look: Look) -> datetime | None:
        """Return up to when history is complete; None while writers of an earlier look are under way."""
        if not look.horizon.writers:
            self._awaited = None
            return look.horizon.moment
        awaited = self._awaited
        if awaited is None:
            self._awaited = look
            return None
        left = sorted(set(awaited.horizon.writers).intersection(look.horizon.writers))
        if left:
            if self._waited(look) > PATIENCE and not awaited.reported:
                awaited.reported = True
                self.events.emit("deliveries.held", seconds=self._waited(look), writers=", ".join(left))
            return None
        self._awaited = look
        # What began after that look and is under way has times of a clock that may stand behind.
        return awaited.horizon.moment - awaited.set_back(look)

    def _waited(self, look: Look) -> float:
        return 0.0 if self._awaited is None else look.taken_at - self._awaited.taken_at

    def _set_back(self, look: Look) -> float:
        """Return by how many seconds the server's clock may have been set back since history was read."""
        return BEFORE_A_TERM if self._last is None else self._last.set_back(look).total_seconds()
