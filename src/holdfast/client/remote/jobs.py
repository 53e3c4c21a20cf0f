"""Jobs by way of the service."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.client.answer import answer
from holdfast.client.intake import JobText
from holdfast.client.job_verbs import EVERY_JOB, JobVerbs, Stroke, Swept
from holdfast.client.log_reader import LogPage
from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.wire.jobs import (
    Cancelled,
    Done,
    JobAnswer,
    JobBatch,
    JobChoice,
    JobCount,
    JobPage,
    JobStory,
    Lines,
    SweepOrder,
    SweepStroke,
)
from holdfast.client.wire.shape import Because
from holdfast.errors import WaitTimeout
from holdfast.model.assignment import ArtifactRecord, RunnerStory
from holdfast.model.job import JobHandle, JobRecord, JobSummary
from holdfast.model.log import BEGINNING, LogMark
from holdfast.model.selection import JobFilter
from holdfast.rules.intervention import Intervention
from holdfast.store.attempts import Fence
from holdfast.store.jobs import JobEnd
from holdfast.store.logs import LogLine

LONGEST_POLL = 30.0


class RemoteJobs(JobVerbs):
    """The verbs of `JobOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def enqueue(self, texts: Sequence[JobText]) -> list[JobHandle]:
        """Enqueue jobs, all or none, once however often the request has to be repeated."""
        key = str(uuid.uuid4())
        return await self._connection.post("/jobs/batch", list[JobHandle], JobBatch(list(texts)), key=key)

    async def find(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> Sequence[JobSummary]:
        """Return up to *limit* jobs with ids below *before*, newest first."""
        page = await self._connection.get("/jobs", JobPage, limit=limit, before=before, **_asked(chosen))
        return page.jobs

    async def count(self, chosen: JobFilter) -> int:
        """Count the jobs that fit."""
        return (await self._connection.get("/jobs/count", JobCount, **_asked(chosen))).count

    async def show(self, job_id: int) -> JobRecord:
        """Return a job with its arguments, its end and its whole timeline."""
        return (await self._story(job_id)).job

    async def why(self, job_id: int) -> str | None:
        """Say in one sentence what a live job waits for."""
        return (await self._story(job_id)).why

    async def on_runners(self, job_id: int) -> RunnerStory | None:
        """Return what runners had to do with a job."""
        return (await self._story(job_id)).runners

    async def artifacts(self, job_id: int) -> Sequence[ArtifactRecord]:
        """Return the files that runners left of a job, later attempts last."""
        return await self._connection.get(f"/jobs/{job_id}/artifacts", list[ArtifactRecord])

    async def artifact(self, job_id: int, attempt: int, name: str) -> bytes:
        """Return the bytes of a file that an attempt left."""
        path = f"/jobs/{job_id}/attempts/{attempt}/artifacts/{quote(name)}"
        return await self._connection.get_bytes(path)

    async def wait(self, job_id: int, *, timeout: float | None = None) -> Any:
        """Wait for a job and return its result.

        Raises `JobFailed`, `JobCancelled`, `JobNotFound`, and `WaitTimeout` after *timeout* seconds.
        """
        began = time.monotonic()
        while True:
            left = LONGEST_POLL if timeout is None else began + timeout - time.monotonic()
            poll = max(0.0, min(LONGEST_POLL, left))
            end = await self._connection.get(f"/jobs/{job_id}/wait", JobAnswer, timeout=poll)
            if end.ended:
                result = msgspec.json.encode(end.result).decode()
                return answer(job_id, JobEnd(end.state, result, end.error, end.reason))
            if timeout is not None and time.monotonic() >= began + timeout:
                raise WaitTimeout(job_id, timeout, state=end.state)

    async def log_page(
        self, job_id: int, *, attempt: int | None = None, after: LogMark = BEGINNING
    ) -> LogPage:
        """Return the next lines after a mark, of one attempt or of all."""
        path = f"/jobs/{job_id}/logs"
        return _page(job_id, await self._connection.get(path, Lines, attempt=attempt, after=after.text))

    async def last_logs(self, job_id: int, *, attempt: int | None = None, limit: int) -> LogPage:
        """Return the last lines of a job in order, of one attempt or of all."""
        path = f"/jobs/{job_id}/logs/tail"
        return _page(job_id, await self._connection.get(path, Lines, attempt=attempt, limit=limit))

    async def cancel(self, job_id: int, reason: str | None = None) -> bool:
        """Cancel a job: True if it has ended, False if its worker was asked to stop it."""
        return (await self._connection.post(f"/jobs/{job_id}/cancel", Cancelled, Because(reason))).ended

    async def discard(self, job_id: int, reason: str | None = None) -> None:
        """End a job as failed that nobody holds."""
        await self._connection.post(f"/jobs/{job_id}/discard", Done, Because(reason))

    async def retry(self, job_id: int, reason: str | None = None) -> None:
        """Take a failed or cancelled job up again, or run a scheduled one now."""
        await self._connection.post(f"/jobs/{job_id}/retry", Done, Because(reason))

    async def stroke(
        self, action: Intervention, chosen: JobFilter, reason: str | None, *, before: int | None
    ) -> Stroke:
        """Do *action* to the 500 newest jobs with ids below *before* that fit."""
        order = SweepOrder(
            action=action,
            chosen=JobChoice(**asdict(chosen)),
            every=chosen == EVERY_JOB,
            reason=reason,
            before=before,
        )
        stroke = await self._connection.post("/jobs/sweep", SweepStroke, order)
        return Stroke(Swept(stroke.changed, stroke.passed_over), stroke.before)

    async def _story(self, job_id: int) -> JobStory:
        return await self._connection.get(f"/jobs/{job_id}", JobStory)


def _asked(chosen: JobFilter) -> dict[str, Any]:
    """Return a filter as the parameters of a listing."""
    given = asdict(chosen)
    return given | {"state": given.pop("states"), "tag": given.pop("tags")}


def _page(job_id: int, found: Lines) -> LogPage:
    lines = [
        LogLine(Fence(job_id, one.attempt), one.byte_offset, one.at, one.level, one.line)
        for one in found.lines
    ]
    return LogPage(lines, found.ended, LogMark.parse(found.next))
