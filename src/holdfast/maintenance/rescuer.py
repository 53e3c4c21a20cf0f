"""Takes jobs from the dead, and only from them."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import bundles, workers

BATCH = 500
REST = 3.5
# A worker that left without giving its jobs back is rare: it is looked for at every third turn, not at first,
# for where dead rows cannot be removed that means to walk over all it ever did.
LEFT_EVERY = 3


class Rescuer(Duty):
    """Declares workers lost whose lease ran out, and rescues what they held."""

    name = "rescuer"

    def begin_term(self) -> None:
        """Look for jobs of the lost at once: a former leader may have declared workers lost, and no more."""
        self._turns, self._has_lost = 1, True

    async def lead(self, term: int) -> float:
        """Look for the dead once, and rescue one batch."""
        lost = await self.database.run(workers.declare_lost(term))
        for worker_id in lost:
            self.events.emit("worker.lost", worker_id=worker_id)
        self._has_lost = self._has_lost or bool(lost)
        also_left = self._turns % LEFT_EVERY == 0
        if also_left:
            # First, so that the rescue need not look for jobs of those again.
            await self.database.run_read_committed(workers.clear_workers(term, BATCH))
        if (self._has_lost or also_left) and await self._rescue(term, also_left=also_left) == BATCH:
            return 0.0
        # What somebody had locked was passed over.
        self._has_lost = self._has_lost and await self.database.run(workers.lost_hold_jobs())
        self._turns += 1
        return REST

    async def _rescue(self, term: int, *, also_left: bool) -> int:
        # Jobs are rescued where they have rows of their own.
        untied = await self.database.run_read_committed(bundles.untie_orphans(term, also_left=also_left))
        rescued = await self.database.run(workers.rescue_jobs(term, BATCH, also_left=also_left))
        if rescued:
            self.events.emit("jobs.rescued", rescued=rescued)
        return BATCH if untied else len(rescued)
