"""Inline mode: a client without a database that runs every job at once, inside ``enqueue``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import EnqueueOptions
from holdfast.app.options import Options, chosen, resolved, several
from holdfast.app.registry import App
from holdfast.errors import ArtifactNotFound, InputInvalid, JobCancelled, JobFailed, JobNotFound
from holdfast.model.assignment import ArtifactRecord
from holdfast.model.job import JobHandle, JobRecord, NewJob
from holdfast.model.outcome import Fail, Outcome, Stop
from holdfast.model.run import EVERY_RUN, RunFilter, RunNode, RunSummary, UnreadSignal
from holdfast.model.step import ActivityRecord, StepRecord
from holdfast.rules.intervention import ALLOWED, Intervention, refusal
from holdfast.testing.inline_job import InlineJob, InlinePlaces
from holdfast.worker.perform import Performer
from holdfast.worker.running import Running


class InlineClient:
    """Has the verbs of `holdfast.Client`, but runs each job inside ``enqueue``, in the caller's task.

    Arguments and options are checked exactly as by the real client.  What is not there without a
    database: retries, delays (a job runs at once, and once), unique keys, limits, schedules and
    ``job.transaction()``, which is refused.  A sync handler runs in the caller's thread.  What a handler
    raises is raised by ``enqueue``, unless *raises* is False; ``jobs`` remembers everything.
    """

    def __init__(self, app: App, *, raises: bool = True) -> None:
        self.jobs: list[InlineJob] = []
        self._app, self._raises = app, raises

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def open(self) -> None:
        """Do nothing: there is no database."""

    async def close(self) -> None:
        """Do nothing: there is no database."""

    async def enqueue(
        self,
        request: JobRequest,
        *,
        connection: Any = None,  # noqa: ARG002 - the real client's verb takes it
        **options: Unpack[EnqueueOptions],
    ) -> JobHandle:
        """Check the job like the real client and run it; *connection* is not used."""
        return await self._enqueue(self._checked(request, chosen(options)))

    async def enqueue_many(
        self,
        requests: Iterable[JobRequest],
        *,
        connection: Any = None,  # noqa: ARG002 - as above
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle]:
        """Check all jobs, then run them one after the other."""
        shared = chosen(options)
        jobs = [self._checked(request, shared) for request in several(requests)]
        return [await self._enqueue(job) for job in jobs]

    async def wait(
        self,
        job_id: int,
        *,
        timeout: timedelta | float | None = None,  # noqa: ARG002 - all jobs have ended
    ) -> Any:
        """Return a job's result as the real client would.

        Raises `JobFailed` also for a job that would be tried again, for here nobody does that.
        """
        job = self._found(job_id)
        if job.outcome is Outcome.CANCELLED:
            raise JobCancelled(job_id, job.reason or "no reason is recorded")
        if job.outcome is not Outcome.COMPLETED:
            raise JobFailed(job_id, f"{job.outcome or 'still running'}: {job.reason}")
        return job.result

    async def job(self, job_id: int) -> JobRecord:
        """Return everything about a job but the timeline of its attempts; raises `JobNotFound`."""
        return self._found(job_id).record()

    async def artifacts(self, job_id: int) -> list[ArtifactRecord]:
        """Return nothing: only runners leave files; raises `JobNotFound`."""
        self._found(job_id)
        return []

    async def artifact(self, job_id: int, attempt: int, name: str) -> bytes:
        """Refuse: only runners leave files; raises `ArtifactNotFound`."""
        raise ArtifactNotFound(job_id, attempt, name)

    async def cancel(self, job_id: int, *, reason: str | None = None) -> bool:
        """Cancel a job that would run again; raises `StateConflict` for one that has ended, `JobNotFound`."""
        job = self._allowed(job_id, Intervention.CANCEL)
        job.note(Stop(reason or "cancelled by a client"))
        return True

    async def retry(self, job_id: int, *, reason: str | None = None) -> None:  # noqa: ARG002 - nobody audits
        """Run a job again that failed, was cancelled or rests; raises `StateConflict`, `JobNotFound`."""
        await self._run(self._allowed(job_id, Intervention.RETRY))

    async def signal(self, run_id: int, name: str, payload: Any = None, *, key: str | None = None) -> int:  # noqa: ARG002 - as the real client
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def pause(self, run_id: int, *, reason: str | None = None) -> None:  # noqa: ARG002 - as the real client
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def resume(self, run_id: int, *, reason: str | None = None) -> None:  # noqa: ARG002 - as the real client
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def fork(self, run_id: int, **_point: Any) -> JobHandle:
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def signals(self, run_id: int) -> list[UnreadSignal]:
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def runs(self, _chosen: RunFilter = EVERY_RUN, **_page: Any) -> list[RunSummary]:
        """Return nothing: runs need a database."""
        return []

    async def run(self, run_id: int, *, depth: int = 3) -> RunNode:  # noqa: ARG002 - as the real client
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def history(self, run_id: int, **_page: Any) -> list[StepRecord]:
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    async def activities(self, run_id: int, **_page: Any) -> list[ActivityRecord]:
        """Refuse: runs need a database."""
        raise _no_runs(run_id)

    def _found(self, job_id: int) -> InlineJob:
        if not 1 <= job_id <= len(self.jobs):
            raise JobNotFound(job_id)
        return self.jobs[job_id - 1]

    def _allowed(self, job_id: int, action: Intervention) -> InlineJob:
        job = self._found(job_id)
        if job.state not in ALLOWED[action]:
            raise refusal(job_id, action, job.state)
        return job

    def _checked(self, request: JobRequest, options: Options) -> NewJob:
        job = resolved(request, options)
        self._app.handler(job.kind)  # raises UnknownKind: what has no handler here cannot run here
        return job

    async def _enqueue(self, request: NewJob) -> JobHandle:
        job = InlineJob(len(self.jobs) + 1, request, msgspec.json.decode(request.args))
        self.jobs.append(job)
        await self._run(job)
        return JobHandle(job.id)

    async def _call(self, function: Callable[[], Any]) -> Any:
        """Call a sync handler."""
        return function()

    async def _run(self, job: InlineJob) -> None:
        running = Running.now(job.claimed())
        # A task of its own, so that a timeout of the handler is not mistaken for one of the caller.
        decision = await asyncio.create_task(
            Performer(self._app, InlinePlaces(job, self._call)).perform(running)
        )
        job.note(decision)
        if self._raises and running.error is not None:
            raise running.error
        if self._raises and isinstance(decision, Fail):
            raise JobFailed(job.id, decision.reason)


def _no_runs(run_id: int) -> InputInvalid:
    return InputInvalid(f"job {run_id} ran inline, without a database: test runs with drain()")
