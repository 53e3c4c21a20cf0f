"""What a client makes of the end of a job that it waited for."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import JobCancelled, JobFailed
from holdfast.model.job import JobState
from holdfast.store.jobs import JobEnd


def answer(job_id: int, end: JobEnd) -> Any:
    """Return the result of a completed job; raises `JobFailed` or `JobCancelled` for any other end."""
    if end.state is JobState.FAILED:
        raise JobFailed(job_id, end.reason or end.error or "no reason is recorded")
    if end.state is JobState.CANCELLED:
        raise JobCancelled(job_id, end.reason or "no reason is recorded")
    return None if end.result is None else msgspec.json.decode(end.result)
