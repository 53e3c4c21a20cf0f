"""Makes due jobs available, exactly when they fall due."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import leader

BATCH = 1000
SHORTEST_REST, LONGEST_REST = 0.001, 5.0


class Stager(Duty):
    """Moves what is due, then sleeps until the next job falls due, at most 5 s.

    A job that falls due sooner than that is announced when it is enqueued.
    """

    name = "stager"

    async def lead(self, term: int) -> float:
        """Stage one batch."""
        staged = await self.database.run(leader.stage_jobs(term, BATCH))
        if staged.count:
            self.events.emit("jobs.staged", count=staged.count)
        if staged.count == BATCH:
            return 0.0
        if staged.next_in is None:
            return LONGEST_REST
        return min(LONGEST_REST, max(SHORTEST_REST, staged.next_in))
