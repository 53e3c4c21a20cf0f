"""Makes due jobs available, exactly when they fall due."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import leader

BATCH = 1000
LONGEST_REST = 5.0


class Stager(Duty):
    """Moves what is due, then sleeps until the next job falls due, at most 5 s.

    A job that falls due sooner than that is announced when it is enqueued.
    """

    name = "stager"

    async def lead(self, term: int) -> float:
        """Stage one batch."""
        staged = await self.database.run(leader.stage_jobs(term, BATCH))
        if staged:
            self.events.emit("jobs.staged", count=staged)
        if staged == BATCH:
            return 0.0
        due = await self.database.run(leader.next_due())
        return LONGEST_REST if due is None else min(LONGEST_REST, max(0.001, due))
