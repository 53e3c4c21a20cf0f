"""A call of a step: the function, its arguments and how often and how long it may try."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.app.handler import Executor, Handler, JobRequest, Policy, is_async
from holdfast.app.keywords import check_names
from holdfast.app.options import checked_backoff, checked_text, seconds_from, whole_number
from holdfast.app.signature import as_promised, json_text, within
from holdfast.app.workflow import Workflow
from holdfast.errors import InputInvalid, OptionInvalid
from holdfast.model.blob import Blob
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff
from holdfast.workflow.options import StepKeywords

MAX_TRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is to be run; what is None comes from its handler, or is one try without a limit."""

    name: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    max_attempts: int | None = None
    retry: Backoff | None = None
    timeout: timedelta | float | None = None
    executor: str | None = None
    transaction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """A checked call; *process* is what a process of its own runs, where that is the executor."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    max_attempts: int
    retry: Backoff
    timeout: float | None
    executor: Executor
    process: Handler[Any, Any] | None
    transaction: bool
    apart: bool

    def result_text(self, value: Any) -> str | None:
        """Return a result as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
        if value is None:
            return None
        text = json_text(
            value, lambda problem: InputInvalid(f"the result of step {self.name!r} cannot be kept: {problem}")
        )
        return within(text, f"the result of step {self.name!r}")

    def result(self, text: str | None) -> Any:
        """Return a recorded result as the type that the function promises."""
        if text is None:
            return None
        if self.apart:
            return msgspec.json.decode(text, type=Blob)
        return as_promised(text, _promised(self.function))


def made_call(
    wanted: Callable[..., Any], args: tuple[Any, ...], keywords: StepKeywords, *, apart: bool = False
) -> StepCall:
    """Return the call that was asked for; raises `OptionInvalid`, `InputInvalid`."""
    check_names(keywords, StepKeywords.__annotations__)
    options = StepOptions(**keywords)
    _check_callable(wanted)
    handler = wanted if isinstance(wanted, Handler) else None
    function = wanted if handler is None else handler.function
    policy = None if handler is None else handler.policy
    name = _name(function, handler, options)
    if not isinstance(options.kwargs, dict):
        raise OptionInvalid("kwargs", options.kwargs, "give a dictionary: arguments by name")
    _check_handler(name, handler)
    executor = _executor(name, function, handler, options.executor)
    if options.transaction and (apart or executor is not Executor.LOOP):
        what = "a blob" if apart else "a sync function"
        raise OptionInvalid(f"transaction of step {name!r}", True, f"{what} cannot share its transaction")
    return StepCall(
        name=name,
        function=function,
        args=args,
        kwargs=options.kwargs,
        max_attempts=_tries(options, policy),
        retry=_retry(options, policy),
        timeout=_timeout(options, policy),
        executor=executor,
        process=_process(name, function, handler) if executor is Executor.PROCESS else None,
        transaction=options.transaction,
        apart=apart,
    )


def _check_callable(wanted: object) -> None:
    if isinstance(wanted, JobRequest):
        msg = f"a step calls a function: enqueue {wanted.kind!r} with run.child(...) or run.enqueue(...)"
        raise InputInvalid(msg)
    if not callable(wanted):
        if inspect.iscoroutine(wanted):
            wanted.close()
        msg = f"a step calls a function: give {wanted!r} without calling it, then its arguments"
        raise InputInvalid(msg)


def _name(function: Callable[..., Any], handler: Handler[Any, Any] | None, options: StepOptions) -> str:
    own = handler.kind if handler is not None else getattr(function, "__name__", None)
    name = own if options.name is None else options.name
    if name is None:
        raise OptionInvalid("name", None, "a step of a callable without a name needs name=")
    return checked_text("name", name, most=200)


def _check_handler(name: str, handler: Handler[Any, Any] | None) -> None:
    if isinstance(handler, Workflow) or (handler is not None and handler.signature.job_parameter is not None):
        msg = f"{name!r} wants a job of its own: start it with run.child({name}.job(...))"
        raise InputInvalid(msg)


def _executor(
    name: str, function: Callable[..., Any], handler: Handler[Any, Any] | None, wanted: str | None
) -> Executor:
    if wanted is None:
        if handler is not None:
            return handler.executor
        # What wraps an async function returns what is to be awaited, and may want the loop to make it.
        on_loop = is_async(function) or is_async(inspect.unwrap(function))
        return Executor.LOOP if on_loop else Executor.THREAD
    if wanted not in tuple(Executor):
        raise OptionInvalid("executor", wanted, f"use one of {', '.join(Executor)}")
    if is_async(function) and wanted != Executor.LOOP:
        raise OptionInvalid(f"executor of step {name!r}", wanted, "an async function runs on the loop")
    return Executor(wanted)


def _process(name: str, function: Callable[..., Any], handler: Handler[Any, Any] | None) -> Handler[Any, Any]:
    if handler is not None and handler.executor is Executor.PROCESS:
        return handler
    return Handler(function, name, Policy(executor=Executor.PROCESS))


def _tries(options: StepOptions, policy: Policy | None) -> int:
    if options.max_attempts is None:
        return 1 if policy is None else policy.max_attempts
    return whole_number("max_attempts", options.max_attempts, most=MAX_TRIES)


def _retry(options: StepOptions, policy: Policy | None) -> Backoff:
    if options.retry is not None:
        return checked_backoff(options.retry)
    return DEFAULT_BACKOFF if policy is None else policy.retry


def _timeout(options: StepOptions, policy: Policy | None) -> float | None:
    if options.timeout is not None:
        return seconds_from("timeout", options.timeout, least=0.001)
    return None if policy is None else policy.timeout.total_seconds()


def _promised(function: Callable[..., Any]) -> Any:
    # Read anew each time: kept by function, it would hold on to every closure that ever was a step.
    try:
        hint = get_type_hints(function, include_extras=True).get("return", Any)
    except (NameError, TypeError):
        return Any
    if get_origin(hint) in (Union, UnionType):
        # Of what may be returned, these are no results.
        results = tuple(one for one in get_args(hint) if one not in (Retry, Snooze, Cancel))
        hint = Union[results] if results else Any  # noqa: UP007 - of as many as there are
    return Any if hint is asyncio.Future else hint
