"""Runs one attempt and decides what it came to."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job
from holdfast.app.options import seconds_from
from holdfast.app.registry import App
from holdfast.errors import ArgumentsInvalid, BackoffInvalid, InputInvalid, LeaseLost, Poison
from holdfast.model.outcome import Cancel, Complete, Retry, Snooze, Stop, Transition
from holdfast.rules import outcome as decide
from holdfast.rules.backoff import Backoff, backoff_from_json
from holdfast.rules.outcome import Failure
from holdfast.worker.executors import Executors
from holdfast.worker.journal import current_attempt
from holdfast.worker.running import Cause, Running, TimedOut
from holdfast.worker.transaction import result_text


class Performer:
    """Runs attempts of one application's kinds."""

    def __init__(self, app: App, executors: Executors) -> None:
        self._app, self._executors = app, executors
        self._decoders: dict[str, Backoff] = {}

    async def perform(self, running: Running) -> Transition | None:
        """Run the attempt to its end; answers the decision, or None where nothing must be written.

        Nothing is written for an attempt that lost its lease, and for one that its own transaction completed.
        """
        token = current_attempt.set(running.fence)
        try:
            returned = await self._call(running)
        except BaseException as error:
            if running.settled or running.cause is Cause.LOST:
                return None
            running.error = error
            return self._after_error(running, error)
        finally:
            current_attempt.reset(token)
        if running.settled or running.cause is Cause.LOST:
            return None
        return self._after_return(running, returned)

    async def _call(self, running: Running) -> Any:
        claimed = running.claimed
        handler = self._app.handlers[claimed.kind]
        arguments = handler.signature.decode(claimed.args)
        job = None
        if (
            handler.signature.job_parameter is not None
            or self._app.middlewares
            or handler.executor is not Executor.LOOP
        ):
            job = self._executors.job_for(running, handler.executor)
            if handler.signature.job_parameter is not None and handler.executor is not Executor.PROCESS:
                arguments[handler.signature.job_parameter] = job
        if handler.executor is Executor.LOOP and not self._app.middlewares:
            return await self._on_loop(running, handler.function(**arguments))
        return await self._surrounded(running, handler, arguments, job)

    async def _on_loop(self, running: Running, call: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - slots are tasks
        running.stop = task.cancel
        try:
            async with asyncio.timeout(running.claimed.timeout) as limit:
                if running.cause is not None:
                    task.cancel()
                return await call
        except TimeoutError:
            if limit.expired():
                raise TimedOut from None
            raise
        finally:
            running.stop = None

    async def _surrounded(
        self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any], job: Job | None
    ) -> Any:
        async def innermost() -> Any:
            if handler.executor is Executor.LOOP:
                return await handler.function(**arguments)
            return await self._executors.run(running, handler, arguments)

        call: Callable[[], Awaitable[Any]] = innermost
        for middleware in reversed(self._app.middlewares):
            call = _wrapped(middleware, job, call)
        if handler.executor is Executor.LOOP:
            return await self._on_loop(running, call())
        return await call()

    def _after_return(self, running: Running, returned: Any) -> Transition:
        kind = running.claimed.kind
        try:
            match returned:
                case None:
                    return Complete()
                case Snooze(delay, reason):
                    return decide.snoozed(seconds_from("Snooze.delay", delay), reason)
                case Cancel(reason):
                    return Stop(decide.storable(reason))
                case Retry(delay, reason):
                    chosen = None if delay is None else seconds_from("Retry.delay", delay)
                    return self._failed(running, Failure(reason, reason, chosen))
                case _:
                    return Complete(result_text(kind, returned))
        except InputInvalid as error:
            # The handler did its work but its answer cannot be kept: trying again would not change that.
            return decide.poisoned(str(error), str(error))

    def _after_error(self, running: Running, error: BaseException) -> Transition:
        if isinstance(error, asyncio.CancelledError):
            stopped = self._after_interruption(running)
            if stopped is not None:
                return stopped
        match error:
            case TimedOut():
                text = f"timed out after {running.claimed.timeout:g} s"
                return self._failed(running, Failure(text, text))
            case Poison() | ArgumentsInvalid():
                return decide.poisoned(one_line(error), told(error))
            case LeaseLost():
                return decide.released(one_line(error))
        return self._failed(running, Failure(one_line(error), told(error)))

    def _after_interruption(self, running: Running) -> Transition | None:
        task = asyncio.current_task()
        if running.cause is not None and task is not None:
            task.uncancel()
        match running.cause:
            case Cause.CANCEL:
                return Stop("cancel requested; the handler was stopped")
            case Cause.RELEASE:
                return decide.released("the worker is stopping")
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        # The handler itself raised CancelledError: an error like any other.
        return None

    def _failed(self, running: Running, failure: Failure) -> Transition:
        claimed = running.claimed
        return decide.after_failure(
            failure,
            failures=claimed.failures,
            max_attempts=claimed.max_attempts,
            backoff=self._backoff(running),
            random=random.random,
        )

    def _backoff(self, running: Running) -> Backoff:
        claimed = running.claimed
        if claimed.retry is None:
            return self._app.handlers[claimed.kind].policy.retry
        try:
            return backoff_from_json(msgspec.json.decode(claimed.retry))
        except (BackoffInvalid, msgspec.DecodeError):
            # Written past the client's checks, by plain SQL: the kind's own policy is the safe choice.
            return self._app.handlers[claimed.kind].policy.retry


def _wrapped(
    middleware: Callable[..., Awaitable[Any]], job: Job | None, call: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    return lambda: middleware(job, call)


def one_line(error: BaseException) -> str:
    """Return an error in one line: its type and its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def told(error: BaseException) -> str:
    """Return all that is known of an error: its traceback."""
    return "".join(traceback.format_exception(error)).strip()
