"""Statements about the leader and its duty of staging; each is fenced by the leader's term."""

from __future__ import annotations

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, first_value, is_any

_SQL = blocks("leader")


def lead(holder: str, worker_id: int | None, ttl: float) -> Statement[int | None]:
    """Renew or take the duty for *ttl* seconds; answers the term, or None where somebody else leads."""
    return Statement("lead", _SQL["lead"], (holder, worker_id, ttl), first_value)


def resign(holder: str, term: int) -> Statement[bool]:
    """Give the duty up at once."""
    return Statement("resign", _SQL["resign"], (holder, term), is_any)


def stage_jobs(term: int, limit: int) -> Statement[int]:
    """Make due jobs available; answers how many were moved."""
    return Statement("stage_jobs", _SQL["stage_jobs"], (term, limit), first_value)


def next_due() -> Statement[float | None]:
    """Look how many seconds the next scheduled job is away; None where nothing is scheduled."""
    return Statement("next_due", _SQL["next_due"], (), first_value)
