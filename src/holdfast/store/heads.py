"""Statements about heads: the best available job of each queue."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, column

_SQL = blocks("heads")


def queue_heads(kinds: Sequence[str]) -> Statement[list[str]]:
    """Find the queues in which jobs of *kinds* are available, the one with the best job first."""
    return Statement("queue_heads", _SQL["queue_heads"], (list(kinds),), column)
