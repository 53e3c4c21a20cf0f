"""Jobs over HTTP: enqueue, list, show, wait."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, HeaderParameter, JSONBody, QueryParameter
from litestar.types import Scope

from holdfast import errors
from holdfast.app.options import in_utc
from holdfast.client.intake import JobText
from holdfast.client.wire.jobs import JobAnswer, JobBatch, JobCount, JobPage, JobStory
from holdfast.client.wire.shape import LARGEST_ID
from holdfast.model.job import JobHandle, JobState
from holdfast.model.selection import JobFilter
from holdfast.model.token import Right
from holdfast.web.api.routes import Before, Id, Limit, act, look, next_page
from holdfast.web.given import GivenBacking, GivenCaller, GivenGate, GivenOperator

# In bytes; one job may take a quarter of what any other request may.
LARGEST_BATCH = 32 * 1024 * 1024
TIMES = ("since", "until", "ended_since", "ended_until")

Moment = Annotated[datetime | None, QueryParameter(description="With its zone: 2026-03-01T12:00Z.")]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        required=False,
        max_length=200,
        description="A request that is sent again with the same key and body makes its jobs once.",
    ),
]


def job_filter(
    *,
    states: Annotated[list[JobState] | None, QueryParameter(name="state")] = None,
    kind: FromQuery[str | None] = None,
    queue: FromQuery[str | None] = None,
    tag: FromQuery[list[str] | None] = None,
    since: Moment = None,
    until: Moment = None,
    ended_since: Moment = None,
    ended_until: Moment = None,
    worker_id: Annotated[int | None, QueryParameter(ge=1, le=LARGEST_ID)] = None,
    text: FromQuery[str | None] = None,
    unique_key: FromQuery[str | None] = None,
    concurrency_key: FromQuery[str | None] = None,
) -> JobFilter:
    """Return the filter of a listing; raises `OptionInvalid` for a time that has no zone, or none in UTC."""
    for name, moment in zip(TIMES, (since, until, ended_since, ended_until), strict=True):
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise errors.OptionInvalid(
                name, moment.isoformat(), "give a time with its zone, such as 2026-03-01T12:00Z"
            )
        in_utc(name, moment)
    return JobFilter(
        states=tuple(states or ()),
        kind=kind,
        queue=queue,
        tags=tuple(tag or ()),
        since=since,
        until=until,
        ended_since=ended_since,
        ended_until=ended_until,
        worker_id=worker_id,
        text=text,
        unique_key=unique_key,
        concurrency_key=concurrency_key,
    )


ENQUEUE_ERRORS = (errors.DuplicateJob, errors.PayloadTooLarge, errors.RequestKeyReused)
LISTING = {"chosen": Provide(job_filter, sync_to_thread=False)}


@act("/", Right.ENQUEUE, status=201, raises=ENQUEUE_ERRORS)
async def enqueue(
    data: JSONBody[JobText], backing: GivenBacking, caller: GivenCaller, key: Key = None
) -> JobHandle:
    """Enqueue a job."""
    [handle] = await backing.submissions(caller).submit([data], key=key, token_id=caller.token_id)
    return handle


@act("/batch", Right.ENQUEUE, status=201, raises=ENQUEUE_ERRORS, request_max_body_size=LARGEST_BATCH)
async def enqueue_many(
    data: JSONBody[JobBatch], backing: GivenBacking, caller: GivenCaller, key: Key = None
) -> list[JobHandle]:
    """Enqueue many jobs, all or none; the answer has their ids in order."""
    return await backing.submissions(caller).submit(data.jobs, key=key, token_id=caller.token_id)


@look("/", dependencies=LISTING, raises=(errors.DatabaseRefused,))
async def list_jobs(
    chosen: NamedDependency[JobFilter], operator: GivenOperator, limit: Limit = 50, before: Before = None
) -> JobPage:
    """List jobs, newest first, without their arguments."""
    found = list(await operator.jobs.find(chosen, limit=limit, before=before))
    return JobPage(found, next_page(found, limit))


@look("/count", dependencies=LISTING, raises=(errors.DatabaseRefused,))
async def count_jobs(chosen: NamedDependency[JobFilter], operator: GivenOperator) -> JobCount:
    """Count the jobs that fit, one by one."""
    return JobCount(await operator.jobs.count(chosen))


@look("/{job_id:int}", raises=(errors.JobNotFound,))
async def show_job(job_id: Id, operator: GivenOperator) -> JobStory:
    """Show everything about a job: arguments, every attempt, its end, why it waits, what operators did."""
    record = await operator.jobs.show(job_id)
    why = await operator.jobs.why(job_id)
    audit = list(await operator.audit(subject=f"job {job_id}"))
    return JobStory(record, why, audit, await operator.jobs.on_runners(job_id))


@look("/{job_id:int}/wait", raises=(errors.JobNotFound,))
async def wait_for_job(
    job_id: Id,
    backing: GivenBacking,
    gate: GivenGate,
    scope: Scope,
    timeout: Annotated[float, QueryParameter(ge=0, le=60)] = 30.0,
) -> JobAnswer:
    """Wait until a job has ended, for up to *timeout* seconds; *ended* says whether it has."""
    end = await backing.watch.wait(job_id, timeout)
    # The token may have been revoked meanwhile.
    await gate.check(scope)
    result = None if end.result is None else msgspec.json.decode(end.result)
    return JobAnswer(job_id, end.state, end.state.is_final, result, end.error, end.reason)


router = Router(
    "/jobs",
    route_handlers=[enqueue, enqueue_many, list_jobs, count_jobs, show_job, wait_for_job],
    tags=["jobs"],
)
