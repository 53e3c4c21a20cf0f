"""Statements about what operators do to jobs: cancel, discard, retry.  Each one is audited by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.model.audit import Mandate
from holdfast.model.job import LIVE_STATES, JobState
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("interventions")


def cancel_jobs(
    job_ids: Sequence[int], mandate: Mandate, states: Iterable[JobState] = LIVE_STATES
) -> Statement[dict[int, bool]]:
    """Cancel jobs that are still in *states*; answers whether each has ended (True) or was asked to stop."""
    return Statement("cancel_jobs", _SQL["cancel_jobs"], _parameters(job_ids, mandate, states), _cancelled)


def _cancelled(rows: Sequence[Row]) -> dict[int, bool]:
    return {row[0]: row[1] for row in rows}


def discard_jobs(
    job_ids: Sequence[int], mandate: Mandate, states: Iterable[JobState] = LIVE_STATES
) -> Statement[list[int]]:
    """End jobs as failed that nobody holds and that are still in *states*; answers those that were ended."""
    return Statement("discard_jobs", _SQL["discard_jobs"], _parameters(job_ids, mandate, states), column)


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The live job that holds a unique key which another one wants; None where it has just ended."""

    unique_key: str
    job_id: int | None


def retry_jobs(
    job_ids: Sequence[int], mandate: Mandate, states: Iterable[JobState] = tuple(JobState)
) -> Statement[dict[int, KeyHolder | None]]:
    """Take jobs up again that are still in *states*.

    Answers for each None, or who holds its unique key: then it stays as it is.
    """
    return Statement("retry_jobs", _SQL["retry_jobs"], _parameters(job_ids, mandate, states), _retried)


def _retried(rows: Sequence[Row]) -> dict[int, KeyHolder | None]:
    return {row[0]: None if row[1] is None else KeyHolder(row[1], row[2] or None) for row in rows}


def _parameters(
    job_ids: Sequence[int], mandate: Mandate, states: Iterable[JobState]
) -> tuple[list[int], str, str | None, list[str]]:
    return (list(job_ids), mandate.actor, mandate.reason, [state.value for state in states])
