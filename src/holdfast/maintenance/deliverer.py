"""Makes deliveries of what ended: each with a job that carries it."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.model.delivery import carrier
from holdfast.store import deliveries, feed, jobs

BATCH = 1000
LOOK_EVERY = 1.0
# An endpoint that is added wakes the duty; this is for a wake-up that got lost.
IDLE = 60.0
TIMEOUT = "30s"


class Deliverer(Duty):
    """Looks once a second at what ended, while an endpoint wants to be told of anything.

    It reads history only up to where no transaction is under way any more, so nothing is missed, and its
    place is part of the transaction that makes the deliveries, so nothing is told twice.
    """

    name = "deliverer"

    async def lead(self, term: int) -> float:
        """Make the deliveries of one look."""
        horizon = await self.database.run(deliveries.delivery_horizon())
        if horizon is None:
            return IDLE
        async with self.database.transaction() as connection:
            await self.database.run(feed.plan_by_time(TIMEOUT), connection)
            planned = await self.database.run(deliveries.plan_deliveries(term, horizon, BATCH), connection)
            if planned.made:
                handles = await self.database.run(
                    jobs.enqueue_jobs([carrier(*one) for one in planned.made]), connection
                )
                ids, carriers = [one for one, _ in planned.made], [handle.id for handle in handles]
                await self.database.run(deliveries.carry_deliveries(ids, carriers), connection)
        if planned.made:
            self.events.emit("deliveries.made", count=len(planned.made))
        return 0.0 if planned.more else LOOK_EVERY
