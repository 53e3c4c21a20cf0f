"""Statements about checkpoints: save and delete are fenced, load is not."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.checkpoint import Checkpoint
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, first_value, is_any

_SQL = blocks("checkpoints")


def save_checkpoint(fence: Fence, version: int, data: str) -> Statement[bool]:
    """Save the state of an attempt; False: the lease was lost."""
    return Statement(
        "save_checkpoint", _SQL["save_checkpoint"], (fence.job_id, fence.attempt, version, data), is_any
    )


def load_checkpoint(job_id: int) -> Statement[Checkpoint | None]:
    """Load the state of a job, or None."""
    return Statement("load_checkpoint", _SQL["load_checkpoint"], (job_id,), _checkpoint)


def _checkpoint(rows: Sequence[Row]) -> Checkpoint | None:
    return Checkpoint(*rows[0]) if rows else None


def delete_checkpoint(fence: Fence) -> Statement[bool | None]:
    """Forget the state of an attempt; None: the lease was lost."""
    return Statement(
        "delete_checkpoint", _SQL["delete_checkpoint"], (fence.job_id, fence.attempt), first_value
    )
