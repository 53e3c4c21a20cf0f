"""What a job has logged, by pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from litestar import Router
from litestar.params import QueryParameter

from holdfast import errors
from holdfast.client.wire.jobs import Line, Lines
from holdfast.model.log import BEGINNING, LogMark
from holdfast.store.logs import LogLine
from holdfast.web.api.routes import LARGEST_ATTEMPT, Id, look
from holdfast.web.given import GivenOperator

START = BEGINNING.text

OneAttempt = Annotated[int | None, QueryParameter(ge=1, le=LARGEST_ATTEMPT, description="Of this one alone.")]


@look("/{job_id:int}/logs", raises=(errors.JobNotFound,))
async def read_logs(
    job_id: Id,
    operator: GivenOperator,
    attempt: OneAttempt = None,
    after: Annotated[str, QueryParameter(max_length=1000, description="`next` of the former page.")] = START,
) -> Lines:
    """Give the next lines, of one attempt or of all; one without an end is kept until the job has ended."""
    page = await operator.jobs.log_page(job_id, attempt=attempt, after=LogMark.parse(after))
    return Lines(_shown(page.lines), page.ended, page.mark.text)


@look("/{job_id:int}/logs/tail", raises=(errors.JobNotFound,))
async def last_logs(
    job_id: Id,
    operator: GivenOperator,
    attempt: OneAttempt = None,
    limit: Annotated[int, QueryParameter(ge=0, le=100_000)] = 100,
) -> Lines:
    """Give the last lines in order, of one attempt or of all."""
    page = await operator.jobs.last_logs(job_id, attempt=attempt, limit=limit)
    return Lines(_shown(page.lines), page.ended, page.mark.text)


def _shown(lines: Sequence[LogLine]) -> list[Line]:
    return [Line(one.fence.attempt, one.byte_offset, one.at, one.level, one.line) for one in lines]


router = Router("/jobs", route_handlers=[read_logs, last_logs], tags=["jobs"])
