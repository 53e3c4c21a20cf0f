"""A handler: the function for a kind, with its policy and its signature."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from holdfast.app.job import Job
from holdfast.app.keywords import EnqueueOptions, check_names
from holdfast.app.signature import Signature
from holdfast.errors import InputInvalid, OptionInvalid
from holdfast.model.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, DEFAULT_TIMEOUT
from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff

P = ParamSpec("P")
R = TypeVar("R")


class Executor(StrEnum):
    """Where a handler runs: on the event loop, in a thread or in a process of its own."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The defaults of a kind; an enqueue may give its own, but no other *executor*."""

    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta = DEFAULT_TIMEOUT
    retry: Backoff = field(default=DEFAULT_BACKOFF)
    executor: Executor | None = None


class JobRequest(msgspec.Struct, frozen=True, gc=False):
    """A kind with checked arguments (JSON text) and its kind's policy: what `Client.enqueue` takes.

    *is_run* says that it is a workflow's, *own* is what `with_options` has given it.
    """

    kind: str
    args: str
    policy: Policy = Policy()
    is_run: bool = False
    own: Mapping[str, Any] | None = None

    def with_options(self, **options: Unpack[EnqueueOptions]) -> JobRequest:
        """Return this request with options of its own, which come before those of the call that enqueues it.

        So the jobs of one `enqueue_many` can differ in their keys, priorities or delays.  None is as if the
        option were not given.  Raises `OptionInvalid` for an option that there is not; what a value is worth
        is seen at the enqueue.
        """
        check_names(options, EnqueueOptions.__annotations__)
        own = {name: value for name, value in options.items() if value is not None}
        return msgspec.structs.replace(self, own={**(self.own or {}), **own})


class Handler(Generic[P, R]):
    """A registered function.  Call it to run it directly; ``.job(…)`` makes what can be enqueued."""

    def __init__(self, function: Callable[P, R], kind: str, policy: Policy) -> None:
        function = function_of(function)
        functools.update_wrapper(self, function)
        self.function, self.kind, self.policy = function, kind, policy
        self.signature = Signature(kind, function, Job, self._injected())
        self.executor = _executor(function, kind, policy.executor)

    def _injected(self) -> str | None:
        """Name the parameter that is given at the call whatever its type; None: by type alone."""
        return None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Handler {self.kind}>"

    def job(self, /, *args: Any, **kwargs: Any) -> JobRequest:
        """Return a request with these arguments; raises `ArgumentsInvalid` where they do not fit."""
        return JobRequest(self.kind, self.signature.encode(args, kwargs), self.policy)


def function_of(given: Callable[P, R]) -> Callable[P, R]:
    """Return the function to register, also of a handler that is registered again, under another kind say.

    Raises `InputInvalid` for what has no name and parameters of its own, or would not run when it is called.
    """
    function = given.function if isinstance(given, Handler) else given
    if not hasattr(function, "__name__"):
        what = type(function).__name__
        msg = f"an object of type {what} can be no handler: register a function that calls it, with `def`"
        raise InputInvalid(msg)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        msg = f"handler {function.__name__!r} has a `yield`, so a call would not run it: return the result"
        raise InputInvalid(msg)
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that can be called, is async itself, whatever it may wrap."""
    return any(inspect.iscoroutinefunction(one) for one in (function, type(function).__call__))


def _executor(function: Callable[..., Any], kind: str, wanted: Executor | None) -> Executor:
    on_loop = is_async(function)
    if wanted is None:
        return Executor.LOOP if on_loop else Executor.THREAD
    if on_loop != (wanted is Executor.LOOP):
        fits = (
            "an async handler runs on the loop" if on_loop else "a sync handler runs in a thread or a process"
        )
        raise OptionInvalid(f"executor of {kind!r}", wanted.value, fits)
    if wanted is Executor.PROCESS and not _is_importable(function):
        where = (
            "define it with a plain `def` at the top level of a module, so that a child process can import it"
        )
        raise OptionInvalid(f"executor of {kind!r}", wanted.value, where)
    return wanted


def _is_importable(function: Callable[..., Any]) -> bool:
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or not getattr(function, "__qualname__", ".").isidentifier():
        return False
    # What was typed at a prompt or given by -c is nowhere to import from.
    return module.__name__ != "__main__" or hasattr(module, "__file__")
