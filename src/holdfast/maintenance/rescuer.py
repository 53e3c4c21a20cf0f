"""Takes jobs from the dead, and only from them."""

from __future__ import annotations

from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.runtime.events import Events
from holdfast.store import workers
from holdfast.store.database import Database

BATCH = 500
REST = 3.5
# A worker that left without giving its jobs back is rare: it is looked for at every third turn.
LEFT_EVERY = 3


class Rescuer(Duty):
    """Declares workers lost whose lease ran out, and rescues what they held."""

    name = "rescuer"

    def __init__(
        self, database: Database, leadership: Leadership, config: MaintenanceConfig, events: Events
    ) -> None:
        super().__init__(database, leadership, config, events)
        self._turns = 0

    async def lead(self, term: int) -> float:
        """Look for the dead once, and rescue one batch."""
        lost = await self.database.run(workers.declare_lost(term))
        for worker_id in lost:
            self.events.emit("worker.lost", worker_id=worker_id)
        looks = bool(lost) or self._turns % LEFT_EVERY == 0
        self._turns += 1
        if looks and await self._rescue(term) == BATCH:
            self._turns = 0
            return 0.0
        if looks:
            await self.database.run_read_committed(workers.clear_workers(term, BATCH))
        return REST

    async def _rescue(self, term: int) -> int:
        rescued = await self.database.run(workers.rescue_jobs(term, BATCH))
        if rescued:
            self.events.emit("jobs.rescued", rescued=rescued)
        return len(rescued)
