"""Statements that delete old history, in batches, each fenced by the leader's term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, count, first_value

_SQL = blocks("prune")


@dataclass(frozen=True, slots=True)
class Retention:
    """What may go: jobs with these outcomes, of one queue or of all, that ended before a moment."""

    outcomes: tuple[str, ...]
    queue: str | None
    before: datetime


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one batch came to; *last_id* is None where none was left."""

    count: int
    last_id: int | None


def retentions(*, completed: float, failed: float) -> Statement[list[Retention]]:
    """Find what is past its retention; both in seconds, queues may have a shorter one of their own."""
    return Statement("retentions", _SQL["retentions"], (completed, failed), _retentions)


def _retentions(rows: Sequence[Row]) -> list[Retention]:
    return [Retention(tuple(row[0]), *row[1:]) for row in rows]


def prune_jobs(
    term: int, retention: Retention, *, since: datetime | None = None, after: int = 0, limit: int
) -> Statement[Pruned]:
    """Delete ended jobs with ids past *after* that ended from *since* on, with all that belongs to them."""
    parameters = (
        term,
        list(retention.outcomes),
        retention.queue,
        since,
        retention.before,
        after,
        limit,
    )
    return Statement("prune_jobs", _SQL["prune_jobs"], parameters, _pruned)


def _pruned(rows: Sequence[Row]) -> Pruned:
    return Pruned(*rows[0])


def prune_logs(term: int, seconds: float, limit: int) -> Statement[int]:
    """Delete log lines outside the daily partitions that are older than *seconds*; answers how many."""
    return Statement("prune_logs", _SQL["prune_logs"], (term, seconds, limit), count)


def prune_chunks(term: int, seconds: float, limit: int) -> Statement[int]:
    """Delete pieces of runners' logs outside the daily partitions that are older than *seconds*."""
    return Statement("prune_chunks", _SQL["prune_chunks"], (term, seconds, limit), count)


def prune_attempts(term: int, seconds: float, limit: int) -> Statement[int]:
    """Delete attempts of living jobs that were no failures and ended more than *seconds* ago."""
    return Statement("prune_attempts", _SQL["prune_attempts"], (term, seconds, limit), count)


def prune_activities(term: int, seconds: float, limit: int) -> Statement[int]:
    """Delete lines of the log of step calls of living runs that are older than *seconds*."""
    return Statement("prune_activities", _SQL["prune_activities"], (term, seconds, limit), count)


def prune_workers(term: int, seconds: float) -> Statement[int]:
    """Delete workers that ended more than *seconds* ago, and their tokens; answers how many."""
    return Statement("prune_workers", _SQL["prune_workers"], (term, seconds), count)


def prune_routes(term: int, kept: int, limit: int) -> Statement[int | None]:
    """Delete shapes of jobs for runners that no living job has, where there are more than *kept*."""
    return Statement("prune_routes", _SQL["prune_routes"], (term, kept, limit), first_value)
