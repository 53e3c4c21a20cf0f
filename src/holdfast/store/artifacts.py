"""Statements about the files that runners leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.assignment import ArtifactLimits, ArtifactRecord
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("artifacts")


@dataclass(frozen=True, slots=True)
class Stored:
    """The hash of the file that is kept, None without room, and whether it is the one that just came."""

    sha256: str | None
    new: bool


def lock_artifacts(job_id: int) -> Statement[list[object]]:
    """Let the files of one job come one at a time until the transaction ends."""
    return Statement("lock_artifacts", _SQL["lock_artifacts"], (job_id,), column)


def store_artifact(
    fence: Fence, worker_id: int, name: str, data: bytes, limits: ArtifactLimits
) -> Statement[Stored | None]:
    """Keep a file of a held assignment, after `lock_artifacts` in the transaction; None: lost lease."""
    parameters = (fence.job_id, fence.attempt, worker_id, name, data, limits.count, limits.total_bytes)
    return Statement("store_artifact", _SQL["store_artifact"], parameters, _stored)


def _stored(rows: Sequence[Row]) -> Stored | None:
    return Stored(*rows[0]) if rows else None


def list_artifacts(job_id: int) -> Statement[list[ArtifactRecord] | None]:
    """Look which files attempts of a job left, those of later attempts last; None: there is no such job."""
    return Statement("list_artifacts", _SQL["list_artifacts"], (job_id,), _records)


def _records(rows: Sequence[Row]) -> list[ArtifactRecord] | None:
    # A job without files is one row of nulls.
    return [ArtifactRecord(*row) for row in rows if row[0] is not None] if rows else None


def read_artifact(fence: Fence, name: str) -> Statement[bytes | None]:
    """Read a file of a job; None: there is none."""
    return Statement("read_artifact", _SQL["read_artifact"], (fence.job_id, fence.attempt, name), _bytes)


def _bytes(rows: Sequence[Row]) -> bytes | None:
    return rows[0][0] if rows else None
