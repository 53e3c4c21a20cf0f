"""What a client makes of the answers about a job: its end, or why nothing could be done to it."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from holdfast.errors import DuplicateJob, JobCancelled, JobFailed, JobNotFound, StateConflict
from holdfast.model.job import JobState
from holdfast.rules.intervention import ALLOWED, Intervention, refusal
from holdfast.store.interventions import KeyHolder
from holdfast.store.jobs import JobEnd

# How often a job is looked for that is on the move between two states or tables.
LOOKS = 5


def answer(job_id: int, end: JobEnd) -> Any:
    """Return the result of a completed job; raises `JobFailed` or `JobCancelled` for any other end."""
    if end.state is JobState.FAILED:
        raise JobFailed(job_id, end.reason or end.error or "no reason is recorded")
    if end.state is JobState.CANCELLED:
        raise JobCancelled(job_id, end.reason or "no reason is recorded")
    return None if end.result is None else msgspec.json.decode(end.result)


def check_refusal(job_id: int, action: Intervention, end: JobEnd | None, *, last: bool) -> None:
    """Say why *action* met no job that it could act on: raises `JobNotFound` or `StateConflict`.

    Where the state allows it all the same, the job was on the move, and so it may be where it seems to run:
    while its end moves into a new partition, it is in no table (see `job_end`).  Nothing is raised then
    unless this was the *last* look.
    """
    if end is None:
        raise JobNotFound(job_id)
    moving = end.state is JobState.RUNNING or end.state in ALLOWED[action]
    if last or not moving:
        raise refusal(job_id, action, end.state)


def check_key(holder: KeyHolder | None) -> None:
    """Raise `DuplicateJob` where another job holds the unique key."""
    if holder is not None:
        raise DuplicateJob(holder.unique_key, holder.job_id)


def check_run_refusal(run_id: int, action: str, end: JobEnd | None) -> NoReturn:
    """Say why a run could not be paused or resumed: raises `JobNotFound` or `StateConflict`."""
    if end is None:
        raise JobNotFound(run_id)
    remedy = "it has ended already" if end.state.is_final else "it is not paused"
    raise StateConflict(run_id, action=action, state=end.state, remedy=remedy)
