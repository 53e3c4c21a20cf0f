"""What operators do to jobs over HTTP: one by one, and many by a filter."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.client.job_verbs import EVERY_JOB
from holdfast.model.job import JobState
from holdfast.model.selection import JobFilter
from holdfast.model.token import Right
from holdfast.rules.intervention import Intervention
from holdfast.web.api.routes import LARGEST_ID, Because, Id, Why, act, reason_of
from holdfast.web.given import GivenOperator

ON_A_JOB = (errors.JobNotFound, errors.StateConflict)

WithZone = Annotated[datetime, msgspec.Meta(tz=True)]


class Cancelled(msgspec.Struct, frozen=True):
    """What a cancel came to: *ended*, or its worker was asked to stop it."""

    ended: bool


class Done(msgspec.Struct, frozen=True):
    """The job was acted on."""

    id: int


class JobChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs are meant: those that fit everything that is given."""

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    tags: tuple[str, ...] = ()
    since: WithZone | None = None
    until: WithZone | None = None
    ended_since: WithZone | None = None
    ended_until: WithZone | None = None
    worker_id: int | None = None
    text: str | None = None


class SweepOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One stroke of a sweep: what is done to the 500 newest jobs with ids below *before* that fit *chosen*.

    *every* has to say that all jobs are meant, where *chosen* asks for nothing.
    """

    action: Intervention
    chosen: JobChoice = JobChoice()
    every: bool = False
    reason: Why = None
    before: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)] | None = None


class SweepStroke(msgspec.Struct, frozen=True):
    """What one stroke came to; *before* is for the next one, null after the last.

    Jobs whose state had changed meanwhile are *passed_over*.
    """

    changed: int
    passed_over: int
    before: int | None


@act("/{job_id:int}/cancel", Right.OPERATE, raises=ON_A_JOB)
async def cancel_job(job_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Cancelled:
    """Cancel a job: one that nobody holds ends at once, one that runs is stopped."""
    return Cancelled(await operator.jobs.cancel(job_id, reason_of(data)))


@act("/{job_id:int}/retry", Right.OPERATE, raises=(*ON_A_JOB, errors.DuplicateJob))
async def retry_job(job_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Done:
    """Take a failed or cancelled job up again under its id, or run a scheduled one now."""
    await operator.jobs.retry(job_id, reason_of(data))
    return Done(job_id)


@act("/{job_id:int}/discard", Right.OPERATE, raises=ON_A_JOB)
async def discard_job(job_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Done:
    """End a job as failed that nobody holds."""
    await operator.jobs.discard(job_id, reason_of(data))
    return Done(job_id)


@act("/sweep", Right.OPERATE, raises=(errors.DatabaseRefused,))
async def sweep_jobs(data: JSONBody[SweepOrder], operator: GivenOperator) -> SweepStroke:
    """Act on many jobs, 500 at a time, newest first: ask again with *before* until it is null."""
    chosen = JobFilter(**msgspec.structs.asdict(data.chosen))
    if (chosen == EVERY_JOB) != data.every:
        wanted = "say every = true for all jobs, or give a filter; not both"
        raise errors.OptionInvalid("every", data.every, wanted)
    stroke = await operator.jobs.stroke(data.action, chosen, data.reason, before=data.before)
    return SweepStroke(stroke.swept.changed, stroke.swept.passed_over, stroke.before)


router = Router("/jobs", route_handlers=[cancel_job, retry_job, discard_job, sweep_jobs], tags=["jobs"])
