"""Statements about queues: their switches and limits."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.worker import QueueLimits, QueueRecord
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement

_SQL = blocks("queues")


def queue_limits(queues: Sequence[str]) -> Statement[list[QueueLimits]]:
    """Look what a claim must know of these queues."""
    return Statement("queue_limits", _SQL["queue_limits"], (list(queues),), _limits)


def _limits(rows: Sequence[Row]) -> list[QueueLimits]:
    return [QueueLimits(*row) for row in rows]


def list_queues() -> Statement[list[QueueRecord]]:
    """Look at every queue with its switches and rolled-up counts."""
    return Statement("list_queues", _SQL["list_queues"], (), _records)


def _records(rows: Sequence[Row]) -> list[QueueRecord]:
    return [QueueRecord(*row) for row in rows]
