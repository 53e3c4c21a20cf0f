"""What a client makes of the answers about a job: its end, or why nothing could be done to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.errors import (
    DuplicateJob,
    HoldfastError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotARun,
    StateConflict,
    StepNotFound,
)
from holdfast.model.job import JobState
from holdfast.model.step import MAIN, StepRecord
from holdfast.rules.intervention import ALLOWED, Intervention, refusal
from holdfast.store.interventions import KeyHolder
from holdfast.store.jobs import JobEnd
from holdfast.store.run_overview import RunLook
from holdfast.store.runs import ForkPoint

T = TypeVar("T")

# How often a job is looked for that is on the move between two states or tables.
LOOKS = 5
# Among how many steps of a run those are looked for that a refusal names.
MOST_NAMED = 100
# What is done to runs, as refusals name it.
PAUSED, RESUMED = "paused", "resumed"


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


def there(found: T | None, missing: HoldfastError) -> T:
    """Return what was *found*; raises *missing* where it is None."""
    if found is None:
        raise missing
    return found


def check_key(holder: KeyHolder | None) -> None:
    """Raise `DuplicateJob` where another job holds the unique key."""
    if holder is not None:
        raise DuplicateJob(holder.unique_key, holder.job_id)


def check_run_refusal(run_id: int, action: str, look: RunLook | None, *, last: bool) -> None:
    """Say why a run could not be *paused*, *resumed* and so on, unless it was on the move.

    Raises `JobNotFound`, `NotARun`, `StateConflict`.
    """
    if look is None:
        raise JobNotFound(run_id)
    if look.is_run is False:
        raise NotARun(run_id, look.kind)
    remedy = _run_remedy(run_id, action, look)
    if remedy is not None or last:
        raise StateConflict(run_id, action=action, state=look.state, remedy=remedy)


def _run_remedy(run_id: int, action: str, look: RunLook) -> str | None:
    if action == RESUMED and look.state in (JobState.FAILED, JobState.CANCELLED):
        return f"`holdfast runs retry {run_id}` takes it up from its failed step"
    if look.state.is_final:
        return "it has ended already"
    return "it is not paused" if action == RESUMED and not look.paused else None


def fork_refusal(
    run_id: int, at: ForkPoint, look: RunLook | None, steps: Sequence[StepRecord]
) -> HoldfastError:
    """Return the error that says why a run could not be forked, with the steps at which it can be."""
    if look is None:
        return JobNotFound(run_id)
    if look.is_run is False:
        return NotARun(run_id, look.kind)
    finished = dict.fromkeys(_named(step) for step in steps if step.state.is_final)
    return StepNotFound(run_id, at.step, at.branch, tuple(finished))


def _named(step: StepRecord) -> str:
    return step.name if step.branch == MAIN else f"{step.name} (branch {step.branch})"


def checked_run(run_id: int, look: RunLook | None) -> RunLook:
    """Return *look*; raises `JobNotFound`, `NotARun`."""
    if look is None:
        raise JobNotFound(run_id)
    if look.is_run is False:
        raise NotARun(run_id, look.kind)
    return look
