"""A job as the live feed tells it: how it stands after something has changed."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Change(msgspec.Struct, frozen=True, gc=False):
    """How a job stands, as of *at*: one that is told twice is the same thing told twice.

    *reason* says why it ended, or with which outcome its last attempt did; *cancelling* that it was asked to
    stop.
    """

    job_id: int
    queue: str
    kind: str
    state: str
    attempt: int
    failures: int
    worker_id: int | None
    progress: float | None
    note: str | None
    cancelling: bool
    reason: str | None
    at: datetime
