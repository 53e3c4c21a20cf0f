"""Statements about what operators do to jobs: cancel, discard, retry.  Each one is audited by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.model.audit import Mandate
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("interventions")


def cancel_jobs(job_ids: Sequence[int], mandate: Mandate) -> Statement[dict[int, bool]]:
    """Cancel jobs; answers for each live one whether it has ended (True) or was asked to stop."""
    return Statement("cancel_jobs", _SQL["cancel_jobs"], _parameters(job_ids, mandate), _by_job)


def discard_jobs(job_ids: Sequence[int], mandate: Mandate) -> Statement[list[int]]:
    """End jobs as failed that nobody holds; answers those that were ended."""
    return Statement("discard_jobs", _SQL["discard_jobs"], _parameters(job_ids, mandate), column)


def retry_jobs(job_ids: Sequence[int], mandate: Mandate) -> Statement[dict[int, int | None]]:
    """Take jobs up again; answers None, or the live job that holds the unique key (0: it has just ended)."""
    return Statement("retry_jobs", _SQL["retry_jobs"], _parameters(job_ids, mandate), _by_job)


def _parameters(job_ids: Sequence[int], mandate: Mandate) -> tuple[list[int], str, str | None]:
    return (list(job_ids), mandate.actor, mandate.reason)


def _by_job(rows: Sequence[Row]) -> dict[int, Any]:
    return {row[0]: row[1] for row in rows}
