"""Statements about queues: their switches and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.audit import Mandate
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What becomes of a queue; what is None stays.

    *max_running* counts where *sets_limit* is true, and None lifts the limit then; likewise *retention*, in
    seconds, where *sets_retention* is true.
    *creates* also takes a name that no worker and no job has used yet.
    """

    action: str
    paused: bool | None = None
    sets_limit: bool = False
    max_running: int | None = None
    key_limit: int | None = None
    creates: bool = False
    sets_retention: bool = False
    retention: float | None = None


def change_queue(name: str, change: QueueChange, mandate: Mandate) -> Statement[QueueRecord | None]:
    """Change a queue and tell the workers; None where there is no such queue."""
    parameters = (
        name,
        mandate.actor,
        mandate.reason,
        change.action,
        change.paused,
        change.sets_limit,
        change.max_running,
        change.key_limit,
        change.creates,
        change.sets_retention,
        change.retention,
    )
    return Statement("change_queue", _SQL["change_queue"], parameters, _queue)


def _queue(rows: Sequence[Row]) -> QueueRecord | None:
    return QueueRecord(*rows[0]) if rows else None
