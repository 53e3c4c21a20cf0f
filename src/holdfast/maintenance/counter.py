"""Counts the jobs of every queue now and then, so that nobody else has to."""

from __future__ import annotations

import time

from holdfast.maintenance.duty import Duty
from holdfast.store import counts
from holdfast.store.counts import UnknownJobs

# A scan may take a fiftieth of the time, however many jobs are waiting.
REST_FOR_EACH_SECOND = 50.0
BATCH = 1000


class Counter(Duty):
    """Rolls live jobs up into their queues, and fails jobs of kinds that nobody knows."""

    name = "counter"

    @property
    def first_rest(self) -> float:
        """Leave the counts as they are at first: whoever has just started has a backlog to see to."""
        return self.config.count_rest

    async def lead(self, term: int) -> float:
        """Count once."""
        begun = time.monotonic()
        unknown = await self.database.run(counts.count_jobs(term, self.config.unknown_grace))
        seconds = time.monotonic() - begun
        self.events.emit("queues.counted", seconds=seconds, unknown=unknown)
        for one in unknown:
            await self._fail(term, one)
        return max(self.config.count_rest, REST_FOR_EACH_SECOND * seconds)

    async def _fail(self, term: int, unknown: UnknownJobs) -> None:
        grace = self.config.unknown_grace
        failed = [0] * BATCH
        while len(failed) == BATCH:
            failed = await self.database.run(counts.fail_unknown(term, unknown, grace=grace, limit=BATCH))
            if failed:
                self.events.emit(
                    "jobs.unknown", queue=unknown.queue, kind=unknown.kind, count=len(failed), job_ids=failed
                )
