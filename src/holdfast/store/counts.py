"""Statements that count: live jobs rolled up into their queues, and kinds that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("counts")


@dataclass(frozen=True, slots=True)
class UnknownJobs:
    """A kind in a queue that no worker of the queue has a handler for."""

    queue: str
    kind: str


def count_jobs(term: int, grace: float) -> Statement[list[UnknownJobs]]:
    """Store every queue's counts; answers the kinds that nobody has known for *grace* seconds."""
    return Statement("count_jobs", _SQL["count_jobs"], (term, grace), _unknown)


def _unknown(rows: Sequence[Row]) -> list[UnknownJobs]:
    return [UnknownJobs(*row) for row in rows]


def fail_unknown(term: int, unknown: UnknownJobs, *, grace: float, limit: int) -> Statement[list[int]]:
    """Fail jobs of a kind that still nobody knows; answers their ids."""
    parameters = (term, unknown.queue, unknown.kind, grace, limit)
    return Statement("fail_unknown", _SQL["fail_unknown"], parameters, column)
