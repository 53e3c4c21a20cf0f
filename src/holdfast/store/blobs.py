"""Statements about blobs: results that are too large for a step."""

from __future__ import annotations

from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, first_value

_SQL = blocks("blobs")


def save_blob(fence: Fence, data: bytes) -> Statement[int | None]:
    """Keep data of a held run; answers its id, None: the lease was lost."""
    return Statement("save_blob", _SQL["save_blob"], (fence.job_id, fence.attempt, data), first_value)


def load_blob(blob_id: int) -> Statement[bytes | None]:
    """Load the data of a blob; None where there is none."""
    return Statement("load_blob", _SQL["load_blob"], (blob_id,), first_value)
