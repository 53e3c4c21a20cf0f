"""Looks after what runners were given: offers nobody takes up, jobs that stand still, pins that run out."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import assignments, offers, runners
from holdfast.store.workers import Rescued

BATCH = 500
REST = 5.0
SHORTEST_REST = 0.001
# While no runner is there, nothing of this happens.
IDLE = 20.0


class Overseer(Duty):
    """Takes assignments back that went nowhere, while runners are there."""

    name = "overseer"
    in_no_hurry = True

    async def lead(self, term: int) -> float:
        """Look once after offers, stalls and pins."""
        if not await self.database.run(runners.has_runners()):
            return IDLE
        unpinned = await self.database.run(offers.unpin_jobs(term, BATCH))
        silent = await self.database.run(offers.expire_offers(term, self.config.offer_for, BATCH))
        stalled = await self.database.run(assignments.take_stalled(term, BATCH))
        self._tell([*silent, *stalled])
        if BATCH in (unpinned.count, len(silent), len(stalled)):
            return 0.0
        return REST if unpinned.next_in is None else min(REST, max(SHORTEST_REST, unpinned.next_in))

    def _tell(self, taken: list[Rescued]) -> None:
        if taken:
            fates = {one.job_id: one.fate for one in taken}
            self.events.emit("assignments.taken", count=len(taken), fates=fates)
