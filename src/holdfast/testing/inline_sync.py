"""Inline mode for applications without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import EnqueueOptions
from holdfast.app.registry import App
from holdfast.model.assignment import ArtifactRecord
from holdfast.model.job import JobHandle, JobRecord
from holdfast.model.run import EVERY_RUN, RunFilter, RunNode, RunSummary, UnreadSignal
from holdfast.model.step import ActivityRecord, StepRecord
from holdfast.testing.inline import InlineClient
from holdfast.testing.inline_job import InlineJob
from holdfast.worker.threads import Result, result_of

T = TypeVar("T")


class SyncInlineClient:
    """Has the verbs of `holdfast.SyncClient`, but runs each job inside ``enqueue``; see `InlineClient`.

    A sync handler runs in the caller's thread and finds no event loop running there, as in a worker.  A job
    that an async handler enqueues runs in a thread of its own, because the handler's loop is busy with it.
    """

    def __init__(self, app: App, *, raises: bool = True) -> None:
        self._inline = _Visited(app, raises=raises)

    @property
    def jobs(self) -> list[InlineJob]:
        """Everything that was enqueued, in order."""
        return self._inline.jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def open(self) -> None:
        """Do nothing: there is no database."""

    def close(self) -> None:
        """Do nothing: there is no database."""

    def enqueue(
        self, request: JobRequest, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Check the job like the real client and run it; *connection* is not used."""
        return self._run(self._inline.enqueue(request, connection=connection, **options))

    def enqueue_many(
        self, requests: Iterable[JobRequest], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> list[JobHandle]:
        """Check all jobs, then run them one after the other."""
        return self._run(self._inline.enqueue_many(requests, connection=connection, **options))

    def wait(self, job_id: int, *, timeout: timedelta | float | None = None) -> Any:
        """Return a job's result as the real client would; see `InlineClient.wait`."""
        return self._run(self._inline.wait(job_id, timeout=timeout))

    def job(self, job_id: int) -> JobRecord:
        """Return everything about a job but the timeline of its attempts; raises `JobNotFound`."""
        return self._run(self._inline.job(job_id))

    def artifacts(self, job_id: int) -> list[ArtifactRecord]:
        """Return nothing: only runners leave files; raises `JobNotFound`."""
        return self._run(self._inline.artifacts(job_id))

    def artifact(self, job_id: int, attempt: int, name: str) -> bytes:
        """Refuse: only runners leave files; raises `ArtifactNotFound`."""
        return self._run(self._inline.artifact(job_id, attempt, name))

    def cancel(self, job_id: int, *, reason: str | None = None) -> bool:
        """Cancel a job that would run again; raises `StateConflict` for one that has ended, `JobNotFound`."""
        return self._run(self._inline.cancel(job_id, reason=reason))

    def retry(self, job_id: int, *, reason: str | None = None) -> None:
        """Run a job again that failed, was cancelled or rests; raises `StateConflict`, `JobNotFound`."""
        self._run(self._inline.retry(job_id, reason=reason))

    def signal(self, run_id: int, name: str, payload: Any = None, *, key: str | None = None) -> int:
        """Refuse: runs need a database."""
        return self._run(self._inline.signal(run_id, name, payload, key=key))

    def pause(self, run_id: int, *, reason: str | None = None) -> None:
        """Refuse: runs need a database."""
        self._run(self._inline.pause(run_id, reason=reason))

    def resume(self, run_id: int, *, reason: str | None = None) -> None:
        """Refuse: runs need a database."""
        self._run(self._inline.resume(run_id, reason=reason))

    def fork(self, run_id: int, **point: Any) -> JobHandle:
        """Refuse: runs need a database."""
        return self._run(self._inline.fork(run_id, **point))

    def signals(self, run_id: int) -> list[UnreadSignal]:
        """Refuse: runs need a database."""
        return self._run(self._inline.signals(run_id))

    def runs(self, chosen: RunFilter = EVERY_RUN, **page: Any) -> list[RunSummary]:
        """Return nothing: runs need a database."""
        return self._run(self._inline.runs(chosen, **page))

    def run(self, run_id: int, *, depth: int = 3) -> RunNode:
        """Refuse: runs need a database."""
        return self._run(self._inline.run(run_id, depth=depth))

    def history(self, run_id: int, **page: Any) -> list[StepRecord]:
        """Refuse: runs need a database."""
        return self._run(self._inline.history(run_id, **page))

    def activities(self, run_id: int, **page: Any) -> list[ActivityRecord]:
        """Refuse: runs need a database."""
        return self._run(self._inline.activities(run_id, **page))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._inline.carry_out(call)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._inline.carry_out, call).result()


class _Visited(InlineClient):
    """Leaves its event loop for as long as a sync handler runs: many a library refuses to work beside one."""

    def __init__(self, app: App, *, raises: bool) -> None:
        super().__init__(app, raises=raises)
        self._visits: dict[asyncio.AbstractEventLoop, asyncio.Queue[Callable[[], object] | None]] = {}

    def carry_out(self, call: Coroutine[Any, Any, T]) -> T:
        """Run *call* to its end on a loop of its own, and what it asks for between two turns of that."""
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            visits = self._visits[loop] = asyncio.Queue()
            task = loop.create_task(call)
            task.add_done_callback(lambda _: visits.put_nowait(None))
            try:
                while (visit := runner.run(visits.get())) is not None:
                    visit()
            finally:
                del self._visits[loop]
            return task.result()

    async def _call(self, function: Callable[[], Any]) -> Any:
        loop, context = asyncio.get_running_loop(), copy_context()
        done: asyncio.Future[Result] = loop.create_future()
        self._visits[loop].put_nowait(lambda: done.set_result(result_of(partial(context.run, function))))
        result, error = await done
        if error is not None:
            raise error
        return result
