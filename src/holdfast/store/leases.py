"""Statements about a lease as the holder of a single attempt knows it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.worker import Renewal
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement

_SQL = blocks("leases")


def renew_attempt(fence: Fence) -> Statement[Renewal | None]:
    """Prolong the lease under which an attempt is held; None: it was lost."""
    return Statement("renew_attempt", _SQL["renew_attempt"], (fence.job_id, fence.attempt), _renewal)


def _renewal(rows: Sequence[Row]) -> Renewal | None:
    return Renewal(*rows[0]) if rows else None
