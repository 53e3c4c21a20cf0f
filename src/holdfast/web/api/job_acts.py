"""What operators do to jobs over HTTP: one by one, and many by a filter."""

from __future__ import annotations

import msgspec
from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.client.job_verbs import EVERY_JOB
from holdfast.client.wire.jobs import Cancelled, Done, SweepOrder, SweepStroke
from holdfast.client.wire.shape import Because
from holdfast.model.selection import JobFilter
from holdfast.model.token import Right
from holdfast.web.api.routes import Id, act, reason_of
from holdfast.web.given import GivenOperator

ON_A_JOB = (errors.JobNotFound, errors.StateConflict)


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
