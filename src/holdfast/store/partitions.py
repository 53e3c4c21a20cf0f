"""Statements about the daily partitions of history: which are missing, which are too old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("partitions")


class PartitionFate(StrEnum):
    """What making or dropping a partition came to."""

    MADE = "made"
    THERE = "there"
    CROWDED = "crowded"
    DROPPED = "dropped"
    GONE = "gone"
    FILLED = "filled"
    BUSY = "busy"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Partition:
    """One UTC day of a partitioned table."""

    parent: str
    day: date

    @property
    def name(self) -> str:
        """The name of its table."""
        return f"{self.parent}_{self.day:%Y%m%d}"


def missing_partitions(ahead: int) -> Statement[list[Partition]]:
    """Find the partitions from today to *ahead* days on that do not exist yet."""
    return Statement("missing_partitions", _SQL["missing_partitions"], (ahead,), _partitions)


def _partitions(rows: Sequence[Row]) -> list[Partition]:
    return [Partition(*row) for row in rows]


def make_partition(term: int, partition: Partition) -> Statement[PartitionFate | None]:
    """Make *partition*, moving rows of its day into it; None: somebody else leads."""
    return Statement("make_partition", _SQL["make_partition"], (term, partition.parent, partition.day), _fate)


def expired_partitions(*, completed: float, failed: float, logs: float) -> Statement[list[str]]:
    """Find the names of the partitions that are past these retentions, in seconds."""
    return Statement("expired_partitions", _SQL["expired_partitions"], (completed, failed, logs), column)


def drop_partition(term: int, name: str) -> Statement[PartitionFate | None]:
    """Drop the partition of that name; None: somebody else leads."""
    return Statement("drop_partition", _SQL["drop_partition"], (term, name), _fate)


def _fate(rows: Sequence[Row]) -> PartitionFate | None:
    return PartitionFate(rows[0][0]) if rows else None
