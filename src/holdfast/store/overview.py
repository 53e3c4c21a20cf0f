"""Statements that show jobs to people: lists, one job with its timeline, why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model.job import AttemptRecord, JobRecord, JobState, JobSummary
from holdfast.model.selection import JobFilter
from holdfast.model.standing import RunnerDemand, Standing
from holdfast.rules.nesting import is_too_deep, may_be_too_deep
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, first_value

_SQL = blocks("overview")

# How long a listing may take.
LISTING_TIMEOUT = "15s"
# Where job_record has JSON text among its columns.
ARGS, META, RESULT, TIMELINE = 9, 10, 26, 27


def plan_freely(timeout: str) -> Statement[list[str]]:
    """Plan this transaction's listings for their filters, and end them after *timeout* (``10s``)."""
    return Statement("plan_freely", _SQL["plan_freely"], (timeout,), column)


def list_jobs(chosen: JobFilter, *, before: int | None, limit: int) -> Statement[list[JobSummary]]:
    """Find jobs with ids below *before*, newest first; after `plan_freely`."""
    return Statement("list_jobs", _SQL["list_jobs"], (*_parameters(chosen), before, limit), _summaries)


def tally_jobs(chosen: JobFilter) -> Statement[int]:
    """Count the jobs that `list_jobs` would find; after `plan_freely`."""
    return Statement("tally_jobs", _SQL["tally_jobs"], _parameters(chosen), first_value)


def _parameters(chosen: JobFilter) -> tuple[Any, ...]:
    return (
        [state.value for state in chosen.live_states],
        [state.value for state in chosen.final_states],
        chosen.kind,
        chosen.queue,
        list(chosen.tags) or None,
        chosen.since,
        chosen.until,
        chosen.ended_since,
        chosen.ended_until,
        chosen.worker_id,
        chosen.text,
        chosen.unique_key,
        chosen.concurrency_key,
    )


def _summaries(rows: Sequence[Row]) -> list[JobSummary]:
    return [JobSummary(*_with_state(row)) for row in rows]


def _with_state(row: Row) -> list[Any]:
    values = list(row)
    values[3] = JobState(values[3])
    return values


def job_record(job_id: int) -> Statement[JobRecord | None]:
    """Show one job with its timeline; None where there is no such job."""
    return Statement("job_record", _SQL["job_record"], (job_id,), _record)


def _record(rows: Sequence[Row]) -> JobRecord | None:
    if not rows:
        return None
    values = _with_state(rows[0])
    for place in (ARGS, META, RESULT):
        values[place] = None if values[place] is None else _data(values[place])
    values[TIMELINE] = msgspec.json.decode(values[TIMELINE], type=tuple[AttemptRecord, ...])
    return JobRecord(*values)


def _data(text: str) -> Any:
    # Plain SQL may store what Python will not read, such as a number of thousands of digits.
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return text if may_be_too_deep(text) and is_too_deep(data) else data


def job_standings(job_ids: Sequence[int], most_ahead: int) -> Statement[dict[int, Standing]]:
    """Look what decides when live jobs run next; one that does not live is left out."""
    parameters = (list(job_ids), most_ahead)
    return Statement("job_standings", _SQL["job_standings"], parameters, _standings)


def _standings(rows: Sequence[Row]) -> dict[int, Standing]:
    return {row[0]: _standing(row) for row in rows}


def _standing(row: Row) -> Standing:
    found = dict(zip(Standing.__match_args__ or Standing.__slots__, row, strict=True))
    demand = None if found["demand"] is None else msgspec.json.decode(found["demand"], type=RunnerDemand)
    return Standing(**found | {"state": JobState(found["state"]), "demand": demand})
