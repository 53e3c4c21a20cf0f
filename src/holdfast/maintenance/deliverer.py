"""Makes deliveries of what ended: each with a job that carries it."""

from __future__ import annotations

import time
from datetime import datetime

from holdfast.maintenance.duty import Duty
from holdfast.model.delivery import carrier
from holdfast.store import deliveries, feed, jobs

BATCH = 1000
LOOK_EVERY = 1.0
# An endpoint that is added wakes the duty; this is for a wake-up that got lost.
IDLE = 60.0
TIMEOUT = "30s"
# A new leader does not know how the server's clock went before: so far back it looks, in seconds.
BEFORE_A_TERM = 60.0


class Deliverer(Duty):
    """Looks once a second at what ended, while an endpoint wants to be told of anything.

    It reads history only up to where no transaction is under way any more, so nothing is missed, and its
    place is part of the transaction that makes the deliveries, so nothing is told twice.  Where the server's
    clock was set back, what ends has times that were looked at before: it looks back as far.
    """

    name = "deliverer"
    _last: tuple[int, datetime, float] | None = None
    _goes_on = False

    async def lead(self, term: int) -> float:
        """Make the deliveries of one look."""
        asked_at = time.monotonic()
        horizon = await self.database.run(deliveries.delivery_horizon())
        if horizon is None:
            return IDLE
        # One that went back goes on from where it came to: so many may have ended at one moment.
        back = 0.0 if self._goes_on else self._set_back(term, horizon.now)
        async with self.database.transaction() as connection:
            await self.database.run(feed.plan_by_time(TIMEOUT), connection)
            planned = await self.database.run(
                deliveries.plan_deliveries(term, horizon.complete, BATCH, back=back), connection
            )
            if planned.made:
                handles = await self.database.run(
                    jobs.enqueue_jobs([carrier(*one) for one in planned.made]), connection
                )
                ids, carriers = [one for one, _ in planned.made], [handle.id for handle in handles]
                await self.database.run(deliveries.carry_deliveries(ids, carriers), connection)
        if not self._goes_on:
            self._last = (term, horizon.now, asked_at)
        self._goes_on = planned.more
        if planned.made:
            self.events.emit("deliveries.made", count=len(planned.made))
        return 0.0 if planned.more else LOOK_EVERY

    def _set_back(self, term: int, now: datetime) -> float:
        """Return by how many seconds the server's clock may have been set back since the last look."""
        if self._last is None or self._last[0] != term:
            return BEFORE_A_TERM
        _, then, asked_at = self._last
        return max(0.0, time.monotonic() - asked_at - (now - then).total_seconds())
