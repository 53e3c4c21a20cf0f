"""Statements about heads: the best available job of each queue, and the next one that will be."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, column, first_value

_SQL = blocks("heads")


def queue_heads(kinds: Sequence[str]) -> Statement[list[str]]:
    """Find the queues in which jobs of *kinds* are available, the one with the best job first."""
    return Statement("queue_heads", _SQL["queue_heads"], (list(kinds),), column)


def next_due(kinds: Sequence[str], queues: Sequence[str] | None) -> Statement[float | None]:
    """Look in how many seconds the next job of *kinds* falls due in *queues* (None: in any), or None."""
    parameters = (list(kinds), None if queues is None else list(queues))
    return Statement("next_due", _SQL["next_due"], parameters, first_value)
