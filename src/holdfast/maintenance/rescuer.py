"""Takes jobs from the dead, and only from them."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import workers

BATCH = 500
REST = 2.5


class Rescuer(Duty):
    """Declares workers lost whose lease ran out, and rescues what they held."""

    name = "rescuer"

    async def lead(self, term: int) -> float:
        """Look for the dead once."""
        for worker_id in await self.database.run(workers.declare_lost(term)):
            self.events.emit("worker.lost", worker_id=worker_id)
        rescued = await self.database.run(workers.rescue_jobs(term, BATCH))
        if rescued:
            self.events.emit("jobs.rescued", rescued=rescued)
        return 0.0 if len(rescued) == BATCH else REST
