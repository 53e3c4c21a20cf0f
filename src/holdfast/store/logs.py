"""Statements about what handlers wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, numbers

_SQL = blocks("logs")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; *byte_offset* is its place in the log of its attempt."""

    fence: Fence
    byte_offset: int
    at: datetime
    level: str
    line: str


def append_logs(lines: Sequence[LogLine], *, again: bool = False) -> Statement[list[int]]:
    """Append lines; answers the jobs whose lease still held.

    *again* leaves out what a former try, whose answer was lost, may have written.
    """
    parameters = (
        numbers([line.fence.job_id for line in lines]),
        numbers([line.fence.attempt for line in lines]),
        numbers([line.byte_offset for line in lines]),
        [line.at.isoformat() for line in lines],
        [line.level for line in lines],
        [line.line for line in lines],
        again,
    )
    return Statement("append_logs", _SQL["append_logs"], parameters, column)


def follow_logs(
    job_id: int, after: tuple[int, int], *, attempt: int | None, limit: int
) -> Statement[list[LogLine]]:
    """Read lines after a place (attempt and byte) in order, of one attempt or of all."""
    parameters = (job_id, *after, attempt, limit)
    return Statement("follow_logs", _SQL["follow_logs"], parameters, partial(_lines, job_id))


def last_logs(job_id: int, *, attempt: int | None, limit: int) -> Statement[list[LogLine]]:
    """Read the last lines, newest first, of one attempt or of all."""
    return Statement("last_logs", _SQL["last_logs"], (job_id, attempt, limit), partial(_lines, job_id))


def _lines(job_id: int, rows: Sequence[Row]) -> list[LogLine]:
    return [LogLine(Fence(job_id, row[0]), *row[1:]) for row in rows]
