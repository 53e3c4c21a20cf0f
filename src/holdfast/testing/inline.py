"""Inline mode: a client without a database that runs every job at once, inside ``enqueue``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from holdfast.app.handler import Executor, Handler, JobRequest
from holdfast.app.job import Job, Transaction
from holdfast.app.options import NOTHING, Options, resolved
from holdfast.app.registry import App
from holdfast.app.signature import json_text
from holdfast.client.keywords import EnqueueOptions
from holdfast.errors import InputInvalid, JobCancelled, JobFailed, JobNotFound, StateConflict
from holdfast.model.job import ClaimedJob, JobHandle, NewJob
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Transition
from holdfast.worker.perform import Performer
from holdfast.worker.running import Running


@dataclass(slots=True)
class InlineJob:
    """One job that ran inline: what was asked, what came of it, what its handler said meanwhile.

    *outcome* is None while the handler runs; *args*, *result* and *checkpoint* are plain JSON data.
    """

    id: int
    request: NewJob
    args: dict[str, Any]
    outcome: Outcome | None = None
    result: Any = None
    reason: str | None = None
    progress: list[tuple[float, str | None]] = field(default_factory=list)
    checkpoint: Any = None
    checkpoint_version: int | None = None


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
        return await self._run(resolved(request, Options(**options) if options else NOTHING))

    async def enqueue_many(
        self,
        requests: Iterable[JobRequest],
        *,
        connection: Any = None,  # noqa: ARG002 - as above
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle]:
        """Check all jobs, then run them one after the other."""
        chosen = Options(**options) if options else NOTHING
        return [await self._run(job) for job in [resolved(request, chosen) for request in requests]]

    async def wait(self, job_id: int, *, timeout: float | None = None) -> Any:  # noqa: ARG002 - all jobs have ended
        """Return a job's result as the real client would.

        Raises `JobFailed` also for a job that would be tried again, for here it never is.
        """
        if not 1 <= job_id <= len(self.jobs):
            raise JobNotFound(job_id)
        job = self.jobs[job_id - 1]
        if job.outcome is Outcome.CANCELLED:
            raise JobCancelled(job_id, job.reason or "no reason is recorded")
        if job.outcome is not Outcome.COMPLETED:
            raise JobFailed(job_id, f"{job.outcome or 'still running'}: {job.reason}")
        return job.result

    async def _run(self, request: NewJob) -> JobHandle:
        self._app.handler(request.kind)  # raises UnknownKind: what has no handler here cannot run here
        job = InlineJob(len(self.jobs) + 1, request, msgspec.json.decode(request.args))
        self.jobs.append(job)
        running = Running(_claimed(job))
        # A task of its own, so that a timeout of the handler is not mistaken for one of the caller.
        decision = await asyncio.create_task(Performer(self._app, _Places(job)).perform(running))
        _record(job, decision)
        if self._raises and running.error is not None:
            raise running.error
        if self._raises and isinstance(decision, Fail):
            raise JobFailed(job.id, decision.reason)
        return JobHandle(job.id)


def _claimed(job: InlineJob) -> ClaimedJob:
    request, now = job.request, datetime.now(UTC)
    return ClaimedJob(
        id=job.id,
        attempt=1,
        failures=0,
        kind=request.kind,
        queue=request.queue,
        priority=request.priority,
        max_attempts=request.max_attempts,
        timeout=request.timeout,
        args=request.args,
        retry=request.retry,
        meta=request.meta,
        tags=request.tags,
        trace=request.trace,
        enqueued_at=now,
        claimed_at=now,
        started=True,
    )


def _record(job: InlineJob, decision: Transition | None) -> None:
    match decision:
        case Complete(result):
            job.outcome, job.result = Outcome.COMPLETED, result and msgspec.json.decode(result)
        case Fail(_, reason):
            job.outcome, job.reason = Outcome.FAILED, reason
        case Stop(reason):
            job.outcome, job.reason = Outcome.CANCELLED, reason
        case PutBack(outcome=outcome, reason=reason):
            job.outcome, job.reason = outcome, reason


class _Places:
    """Where handlers run inline: all of them right here."""

    def __init__(self, job: InlineJob) -> None:
        self._job = job

    def job_for(self, running: Running, executor: Executor) -> Job:
        """Make the `Job` that the handler gets."""
        running.job = Job(running.claimed, _Port(self._job, awaits=executor is Executor.LOOP))
        return running.job

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Call a sync handler; one for a process has not been given its job yet."""
        name = handler.signature.job_parameter
        return handler.function(
            **arguments, **({} if name is None or name in arguments else {name: running.job})
        )


class _Port:
    """Keeps in the `InlineJob` what a handler says of itself."""

    def __init__(self, job: InlineJob, *, awaits: bool) -> None:
        self._job, self._awaits = job, awaits

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the progress."""
        self._job.progress.append((min(1.0, max(0.0, fraction)), note))

    def log(self, level: int, line: str) -> None:
        """Do nothing: the line goes where the logging module sends it."""

    def save_checkpoint(self, state: Any, version: int) -> Any:
        """Keep the state, as JSON gives it back."""
        text = json_text(state, lambda problem: InputInvalid(f"the checkpoint cannot be stored: {problem}"))
        self._job.checkpoint, self._job.checkpoint_version = msgspec.json.decode(text), version
        return self._answer(None)

    def load_checkpoint(self, version: int) -> Any:
        """Give the kept state."""
        saved = self._job.checkpoint_version
        if saved is not None and saved > version:
            state = f"at checkpoint version {saved}, newer than this handler's {version}"
            raise StateConflict(self._job.id, action="resumed", state=state)
        return self._answer(self._job.checkpoint)

    def delete_checkpoint(self) -> Any:
        """Forget the state."""
        self._job.checkpoint = self._job.checkpoint_version = None
        return self._answer(None)

    def transaction(self, job: Job) -> Transaction:
        """Refuse: there is no database."""
        msg = f"job {job.id} runs inline, without a database: test job.transaction() with drain()"
        raise InputInvalid(msg)

    def _answer(self, value: Any) -> Any:
        return _soon(value) if self._awaits else value


async def _soon(value: Any) -> Any:
    return value
