"""Makes the daily partitions of history ahead of time and drops those that are too old."""

from __future__ import annotations

from holdfast.maintenance.duty import Duty
from holdfast.store import partitions
from holdfast.store.partitions import PartitionFate

DAYS_AHEAD = 3
# Soon again after a lock was not had.
RETRY = 10.0


class Partitioner(Duty):
    """Keeps partitions for today and three days ahead, and drops what is past its retention.

    Both wait for locks only briefly and try again later, so that no worker waits for them.
    """

    name = "partitioner"
    in_no_hurry = True

    async def lead(self, term: int) -> float:
        """Make what is missing, drop what is empty and old."""
        fates = await self._make(term) | await self._drop(term)
        return RETRY if PartitionFate.BUSY in fates else self.config.prune_rest

    async def _make(self, term: int) -> set[PartitionFate | None]:
        fates: set[PartitionFate | None] = set()
        for partition in await self.database.run(partitions.missing_partitions(DAYS_AHEAD)):
            fate = await self.database.run(partitions.make_partition(term, partition))
            self._tell(partition.name, fate)
            fates.add(fate)
        return fates

    async def _drop(self, term: int) -> set[PartitionFate | None]:
        fates: set[PartitionFate | None] = set()
        expired = partitions.expired_partitions(
            completed=self.config.retention_completed,
            failed=self.config.retention_failed,
            logs=self.config.retention_logs,
        )
        for name in await self.database.run(expired):
            fate = await self.database.run(partitions.drop_partition(term, name))
            self._tell(name, fate)
            fates.add(fate)
        return fates

    def _tell(self, name: str, fate: PartitionFate | None) -> None:
        if fate is not None:
            self.events.emit("partition.tended", partition=name, fate=fate)
