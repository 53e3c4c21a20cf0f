"""Statements of the live feed: how jobs stand now, and what has changed since a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from holdfast.model.change import Change
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("feed")


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """How far history was told: ends up to *moment*, enqueues up to *job_id*, some of later ones too."""

    moment: datetime
    job_id: int


def jobs_now(job_ids: Sequence[int]) -> Statement[list[Change]]:
    """Look how these jobs stand."""
    return Statement("jobs_now", _SQL["jobs_now"], (list(job_ids),), _changes)


def held_now(limit: int) -> Statement[list[Change]]:
    """Find the jobs that workers hold."""
    return Statement("held_now", _SQL["held_now"], (limit,), _changes)


def ended_since(moment: datetime, limit: int) -> Statement[list[Change]]:
    """Find jobs that ended from *moment* on; after `plan_by_time`."""
    return Statement("ended_since", _SQL["ended_since"], (moment, limit), _changes)


def returned_since(moment: datetime, limit: int) -> Statement[list[Change]]:
    """Find live jobs with an attempt that ended from *moment* on; after `plan_by_time`."""
    return Statement("returned_since", _SQL["returned_since"], (moment, limit), _changes)


def enqueued_since(job_id: int, limit: int) -> Statement[list[Change]]:
    """Find live jobs that are newer than *job_id* and held by nobody."""
    return Statement("enqueued_since", _SQL["enqueued_since"], (job_id, limit), _changes)


def _changes(rows: Sequence[Row]) -> list[Change]:
    return [_rounded(Change(*row)) for row in rows]


def _rounded(change: Change) -> Change:
    # It is kept in four bytes: 0.1 would be told as 0.10000000149011612.
    if change.progress is None:
        return change
    return msgspec.structs.replace(change, progress=round(change.progress, 4))


def feed_place(late: timedelta) -> Statement[FeedPlace]:
    """Look where a feed begins that wants nothing of the past, but for what may be *late*."""
    return Statement("feed_place", _SQL["feed_place"], (late.total_seconds(),), _place)


def _place(rows: Sequence[Row]) -> FeedPlace:
    return FeedPlace(*rows[0])


def plan_by_time(timeout: str) -> Statement[list[str]]:
    """Plan this transaction's looks at history by their time, and end them after *timeout* (``10s``)."""
    return Statement("plan_by_time", _SQL["plan_by_time"], (timeout,), column)
