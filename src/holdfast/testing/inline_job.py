"""A job of inline mode: what was asked, what came of it, and where its handler runs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.app.answers import checkpoint_text
from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job, Transaction
from holdfast.errors import InputInvalid, StateConflict
from holdfast.model.job import ClaimedJob, JobRecord, JobState, NewJob
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Transition
from holdfast.worker.running import Running
from holdfast.workflow.ledger import Ledger

_STATES = {
    None: JobState.RUNNING,
    Outcome.COMPLETED: JobState.COMPLETED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}


@dataclass(slots=True)
class InlineJob:
    """One job that ran inline.

    *outcome* is None while the handler runs; *args*, *result* and *checkpoint* are plain JSON data;
    *progress* has every report of the handler.
    """

    id: int
    request: NewJob
    args: dict[str, Any]
    attempt: int = 0
    failures: int = 0
    outcome: Outcome | None = None
    result: Any = None
    reason: str | None = None
    error: str | None = None
    progress: list[tuple[float, str | None]] = field(default_factory=list)
    checkpoint: Any = None
    checkpoint_version: int | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished_at: datetime | None = None

    @property
    def state(self) -> JobState:
        """Where the job would stand in a database; one that would run again is scheduled."""
        return _STATES.get(self.outcome, JobState.SCHEDULED)

    def claimed(self) -> ClaimedJob:
        """Begin an attempt, as a worker would get it."""
        self.attempt, self.outcome, self.reason, self.error = self.attempt + 1, None, None, None
        request = self.request
        return ClaimedJob(
            id=self.id,
            attempt=self.attempt,
            failures=self.failures,
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
            enqueued=self.created_at.timestamp(),
            claimed=time.time(),
            started=True,
        )

    def note(self, decision: Transition | None) -> None:
        """Keep what the attempt came to."""
        match decision:
            case Complete(result):
                self.outcome, self.result = Outcome.COMPLETED, result and msgspec.json.decode(result)
            case Fail(error, reason):
                self.outcome, self.reason, self.error = Outcome.FAILED, reason, error
                self.failures += 1
            case Stop(reason):
                self.outcome, self.reason = Outcome.CANCELLED, reason
            case PutBack(outcome, _, counts, reason, error):
                self.outcome, self.reason, self.error = outcome, reason, error
                self.failures += int(counts)
        self.finished_at = datetime.now(UTC) if self.state.is_final else None

    def record(self) -> JobRecord:
        """Return the job as the real client shows it; its timeline has no attempts."""
        request = self.request
        fraction, words = self.progress[-1] if self.progress else (None, None)
        return JobRecord(
            id=self.id,
            kind=request.kind,
            queue=request.queue,
            state=self.state,
            priority=request.priority,
            attempt=self.attempt,
            failures=self.failures,
            max_attempts=request.max_attempts,
            timeout=request.timeout,
            args=self.args,
            meta=msgspec.json.decode(request.meta),
            tags=request.tags,
            unique_key=request.unique_key,
            concurrency_key=request.concurrency_key,
            parent_id=request.parent_id,
            created_at=self.created_at,
            run_at=request.run_at,
            claimed_at=self.created_at,
            started_at=self.created_at,
            finished_at=self.finished_at,
            worker_id=None,
            cancel_requested_at=None,
            progress=fraction,
            progress_note=words,
            reason=self.reason,
            error=self.error,
            result=self.result,
        )


class InlinePlaces:
    """Where handlers run inline: all of them right here; *call* calls the sync ones."""

    def __init__(self, job: InlineJob, call: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._job, self._call = job, call

    def job_for(self, running: Running, executor: Executor) -> Job:
        """Make the `Job` that the handler gets."""
        running.job = Job(running.claimed, InlinePort(self._job, awaits=executor is Executor.LOOP))
        return running.job

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Call a sync handler; one for a process has not been given its job yet."""
        name = handler.signature.job_parameter
        own = {} if name is None or name in arguments else {name: running.job}
        return await self._call(partial(handler.function, **arguments, **own))

    async def note_begun(self, running: Running) -> bool:  # noqa: ARG002
        """Say yes: nothing is recorded here."""
        return True

    def ledger_for(self, running: Running) -> Ledger:
        """Refuse: what a run remembers is in the database."""
        msg = f"job {running.claimed.id} is a run, which needs a database: test it with drain()"
        raise InputInvalid(msg)


class InlinePort:
    """Keeps in the `InlineJob` what a handler says of itself."""

    def __init__(self, job: InlineJob, *, awaits: bool) -> None:
        self._job, self._awaits = job, awaits

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the progress."""
        self._job.progress.append((fraction, note))

    def save_checkpoint(self, state: Any, version: int) -> Any:
        """Keep the state, as JSON gives it back."""
        text = checkpoint_text(state)
        return self._carried(lambda: self._keep(msgspec.json.decode(text), version))

    def load_checkpoint(self, version: int) -> Any:
        """Give the kept state."""
        saved = self._job.checkpoint_version
        if saved is not None and saved > version:
            state = f"at checkpoint version {saved}, newer than this handler's {version}"
            raise StateConflict(self._job.id, action="resumed", state=state)
        return self._carried(lambda: deepcopy(self._job.checkpoint))

    def delete_checkpoint(self) -> Any:
        """Forget the state."""
        return self._carried(lambda: self._keep(None, None))

    def _keep(self, state: Any, version: int | None) -> None:
        self._job.checkpoint, self._job.checkpoint_version = state, version

    def transaction(self, job: Job) -> Transaction:
        """Refuse: there is no database."""
        msg = f"job {job.id} runs inline, without a database: test job.transaction() with drain()"
        raise InputInvalid(msg)

    def _carried(self, act: Callable[[], Any]) -> Any:
        # As in a worker, what an async handler does not await is not done.
        return _soon(act) if self._awaits else act()


async def _soon(act: Callable[[], Any]) -> Any:
    return act()
