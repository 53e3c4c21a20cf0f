"""Statements about the leader and its duty of staging; each is fenced by the leader's term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, first_value, is_any

_SQL = blocks("leader")

# A leader that died is followed within a fraction of a second after its duty ran out: where nobody leads for
# so much longer, in seconds, nobody can.
SILENCE = 4.0


def lead(
    holder: str, worker_id: int | None, ttl: float, patience: float | None = None
) -> Statement[int | None]:
    """Renew or take the duty for *ttl* seconds; answers the term, or None where somebody else leads.

    A gap of more than *patience* seconds, in which nobody did, counts as an outage: see
    `workers.declare_lost`.  None: this one does not count, neither for a gap nor against it.
    """
    return Statement("lead", _SQL["lead"], (holder, worker_id, ttl, patience), first_value)


def leader_lapse() -> Statement[float | None]:
    """Look in how many seconds the duty runs out: negative where it has; None: resigned or never taken."""
    return Statement("leader_lapse", _SQL["leader_lapse"], (), first_value)


def resign(holder: str, term: int) -> Statement[bool]:
    """Give the duty up at once."""
    return Statement("resign", _SQL["resign"], (holder, term), is_any)


@dataclass(frozen=True, slots=True)
class Staged:
    """How many jobs were made available, and the seconds until the next one falls due, if there is one."""

    count: int
    next_in: float | None


def stage_jobs(term: int, limit: int) -> Statement[Staged]:
    """Make due jobs available, at most *limit* of them."""
    return Statement("stage_jobs", _SQL["stage_jobs"], (term, limit), _staged)


def _staged(rows: Sequence[Row]) -> Staged:
    return Staged(*rows[0][:2])
