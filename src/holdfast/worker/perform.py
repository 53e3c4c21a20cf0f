"""Runs one attempt and decides what it came to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job
from holdfast.app.registry import App
from holdfast.app.workflow import Workflow
from holdfast.errors import ArgumentsInvalid, LeaseLost, Poison
from holdfast.model.outcome import Complete, Fail, Stop, Suspend, Transition
from holdfast.rules import outcome as decide
from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff, stored_backoff
from holdfast.rules.outcome import Failure
from holdfast.rules.telling import one_line, told, untellable
from holdfast.store.attempts import Fence
from holdfast.worker import wire
from holdfast.worker.deadlines import Deadlines
from holdfast.worker.eager import EagerCoroutine
from holdfast.worker.endings import answered
from holdfast.worker.journal import current_attempt
from holdfast.worker.run_middleware import SurroundedRun
from holdfast.worker.running import Cause, Running, Settlement, TimedOut
from holdfast.workflow.execution import Execution
from holdfast.workflow.failures import Failures
from holdfast.workflow.ledger import Ledger
from holdfast.workflow.redaction import Redactions
from holdfast.workflow.replay import Customs

# What a run meets that is cancelled neither by its worker nor by an operator.
CUT_OFF = (
    "the code of the run was cancelled while it waited, as by asyncio.timeout around what it awaits: "
    "give the step or the wait its own timeout="
)

# What most handlers come to, and members of enumerations that every job asks for: made and found once.
COMPLETED = Complete()
ON_LOOP, LOST, COMMITTED = Executor.LOOP, Cause.LOST, Settlement.COMMITTED


class Places(Protocol):
    """Where handlers run: `Executors` in a worker."""

    def job_for(self, running: Running, executor: Executor) -> Job:
        """Make the `Job` that a handler of this executor gets."""

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Run a sync handler to its end, its timeout or its interruption."""

    def ledger_for(self, running: Running) -> Ledger:
        """Make what a run needs to go on."""

    async def note_begun(self, running: Running) -> bool:
        """Record that an attempt begins, before it does; False where that cannot be."""


class Performer:
    """Runs attempts of one application's kinds."""

    def __init__(self, app: App, executors: Places) -> None:
        self._app, self._executors = app, executors
        self._deadlines = Deadlines()
        self._customs = Customs(Failures(app.errors), Redactions(app.redactions))

    async def perform(self, running: Running) -> Transition | None:
        """Run the attempt to its end; answers the decision, or None where nothing must be written.

        Nothing is written for an attempt that lost its lease, and for one that its own transaction completed.
        """
        token = current_attempt.set(running.fence)
        try:
            # A job that ends its worker at once must be known to have begun.
            if running.claimed.suspect and not await self._is_known(running):
                return decide.released("it may have ended a worker, and its beginning could not be recorded")
            if running.cause is not None:
                # Meanwhile somebody stopped it: there was no handler yet that could have been told.
                raise asyncio.CancelledError
            returned, rest = self._begin(running)
            if rest is not None:
                returned = await rest
            return self._after_return(running, returned)
        except BaseException as error:
            if _is_over(running):
                return None
            running.error = error
            try:
                return self._after_error(running, error)
            except Exception as untold:
                # A handler's own error class may fail at whatever it is asked; its attempt ends all the same.
                text = untellable(error, untold)
                return self._failed(running, Failure(text, text))
        finally:
            current_attempt.reset(token)

    async def _is_known(self, running: Running) -> bool:
        return running.marked or await self._executors.note_begun(running)

    def _begin(self, running: Running) -> tuple[Any, Awaitable[Any] | None]:
        """Begin the handler: answers what it returned at once, or what runs it to its end."""
        claimed = running.claimed
        handler = self._app.handlers[claimed.kind]
        arguments = _decoded(handler, claimed.args)
        if isinstance(handler, Workflow):
            return None, self._go_on(running, handler, arguments)
        parameter = handler.signature.job_parameter
        is_surrounded = bool(self._app.middlewares) or handler.executor is not ON_LOOP
        if parameter is not None or is_surrounded:
            job = self._executors.job_for(running, handler.executor)
            if parameter is not None and handler.executor is not Executor.PROCESS:
                arguments[parameter] = job
            if is_surrounded:
                return None, self._surrounded(running, handler, arguments, job)
        call = handler.function(**arguments)
        try:
            # Many handlers never wait, and need no clock and no way to be stopped.
            wish = call.send(None)
        except StopIteration as done:
            return done.value, None
        return None, self._on_loop(running, EagerCoroutine(call, wish))

    async def _go_on(self, running: Running, workflow: Workflow[Any, Any], arguments: dict[str, Any]) -> Any:
        """Go on with a run; its middleware surrounds each attempt."""
        execution = Execution(self._executors.ledger_for(running), workflow, arguments, self._customs)
        if not self._app.middlewares:
            return await self._on_loop(running, execution.perform())
        job = self._executors.job_for(running, Executor.LOOP)
        run = SurroundedRun(execution, lambda: running.cause is Cause.CANCEL)
        return await self._on_loop(running, run.go_on(partial(self._inside_middleware, job)))

    async def _on_loop(self, running: Running, call: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - slots are tasks
        stops = 0

        def stop() -> None:
            nonlocal stops
            stops += 1
            task.cancel()

        running.stop = stop
        running.limit = limit = asyncio.timeout(None)
        running.renew = partial(self._deadlines.renew, limit, running.claimed.timeout)
        try:
            async with limit:
                self._deadlines.watch(limit, running.claimed.timeout)
                return await call
        except TimeoutError:
            if limit.expired():
                raise TimedOut from None
            raise
        finally:
            self._deadlines.forget(limit)
            running.stop = None
            # The slot goes on: what is left of cancelling() is meant for the slot itself.
            for _ in range(stops):
                task.uncancel()

    async def _surrounded(
        self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any], job: Job
    ) -> Any:
        async def innermost() -> Any:
            if handler.executor is Executor.LOOP:
                return await handler.function(**arguments)
            if running.cause is not None:
                raise asyncio.CancelledError
            return await self._executors.run(running, handler, arguments)

        call = self._inside_middleware(job, innermost)
        if handler.executor is Executor.LOOP:
            return await self._on_loop(running, call())
        return await call()

    def _inside_middleware(
        self, job: Job, call: Callable[[], Awaitable[Any]]
    ) -> Callable[[], Awaitable[Any]]:
        """Return *call* with the application's middleware around it, the first one outermost."""
        for middleware in reversed(self._app.middlewares):
            call = partial(middleware, job, call)
        return call

    def _after_return(self, running: Running, returned: Any) -> Transition | None:
        if _is_over(running):
            return None
        if returned is None:
            return COMPLETED
        if isinstance(returned, Fail | Stop | Suspend):
            # The decision of a run.
            return returned
        match answered(running.claimed.kind, returned):
            case wire.Returned(result):
                return Complete(result)
            case wire.Snoozed(seconds, reason):
                return decide.snoozed(seconds, reason)
            case wire.Cancelled(reason):
                return Stop(reason)
            case wire.Retried(seconds, reason):
                return self._failed(running, Failure(reason, reason, seconds))
            case wire.Raised(reason, error):
                return decide.poisoned(reason, error)

    def _after_error(self, running: Running, error: BaseException) -> Transition:
        match error:
            case asyncio.CancelledError() if running.cause is Cause.CANCEL:
                return Stop("cancel requested; the handler was stopped")
            case Poison():
                return decide.poisoned(one_line(error), told(error))
            case Misfit():
                return decide.poisoned(one_line(error.invalid), told(error.invalid))
            case _ if running.cause is Cause.RELEASE:
                # Also where a handler makes an error of its own out of being stopped: a drain costs nothing.
                return decide.released("the worker is stopping")
            case TimedOut():
                text = f"timed out after {running.claimed.timeout:g} s"
                if self._is_run(running.claimed.kind):
                    text += " in which it recorded nothing"
                return self._failed(running, Failure(text, text))
            case LeaseLost(job_id=job_id, attempt=attempt) if running.fence == Fence(job_id, attempt):
                return decide.released(one_line(error))
            case asyncio.CancelledError() if isinstance(self._app.handlers[running.claimed.kind], Workflow):
                return self._failed(running, Failure(CUT_OFF, f"{CUT_OFF}\n\n{told(error)}"))
        return self._failed(running, Failure(one_line(error), told(error)))

    def _failed(self, running: Running, failure: Failure) -> Transition:
        claimed = running.claimed
        if claimed.failures + 1 == claimed.max_attempts and self._is_run(claimed.kind):
            return decide.last_act(failure)
        return decide.after_failure(
            failure,
            failures=claimed.failures,
            max_attempts=claimed.max_attempts,
            backoff=self._backoff(running),
            random=random.random,
        )

    def _is_run(self, kind: str) -> bool:
        return isinstance(self._app.handlers.get(kind), Workflow)

    def _backoff(self, running: Running) -> Backoff:
        stored = stored_backoff(running.claimed.retry)
        if stored is not None:
            return stored
        handler = self._app.handlers.get(running.claimed.kind)
        own = None if handler is None else handler.policy.retry
        # What came past the registry must not keep an attempt from its end.
        return own if isinstance(own, Backoff) else DEFAULT_BACKOFF


class Misfit(Exception):
    """The stored arguments do not fit the handler (those of a job that it enqueues are its own affair)."""

    def __init__(self, invalid: ArgumentsInvalid) -> None:
        super().__init__(str(invalid))
        self.invalid = invalid


def _decoded(handler: Handler[Any, Any], args: str) -> dict[str, Any]:
    try:
        return handler.signature.decode(args)
    except ArgumentsInvalid as invalid:
        raise Misfit(invalid) from invalid


def _is_over(running: Running) -> bool:
    """True where nothing is left to write: the lease is lost, or its own transaction ended the attempt."""
    return running.settlement is COMMITTED or running.cause is LOST
