"""The application: every kind with its handler, and what surrounds them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

import msgspec

from holdfast.app.handler import Executor, Handler, JobRequest, Policy, function_of
from holdfast.app.job import Job
from holdfast.app.keywords import RunnerWishes, check_names
from holdfast.app.options import LONGEST_KIND, check_policy, checked_text, chosen, resolved, seconds_from
from holdfast.app.workflow import Workflow, versioned
from holdfast.errors import InputInvalid, OptionInvalid, UnknownKind
from holdfast.model.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, DEFAULT_TIMEOUT, NewJob
from holdfast.model.schedule import DEFAULT_MAX_MISSED, MissedTicks, Overlap, Schedule
from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff
from holdfast.rules.ticks import check_schedule

P = ParamSpec("P")
R = TypeVar("R")
# What a schedule keeps of a request's own options.
KEPT_BY_SCHEDULES = ("queue", "priority", "max_attempts", "timeout", *RunnerWishes.__annotations__)
Choice = TypeVar("Choice", bound=StrEnum)
E = TypeVar("E", bound=type[Exception])

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Call], Awaitable[Any]]
# From the name of a step and what is to be logged of it to what is logged.
Redaction = Callable[[str, Any], Any]
Lifespan = Callable[[], AsyncIterator[None]]


class App:
    """A registry of kinds.  Fill it at import; give it to a client and to workers."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[Any, Any]] = {}
        self.middlewares: list[Middleware] = []
        self.schedules: dict[str, Schedule] = {}
        self.lifespans: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        self.errors: dict[str, type[Exception]] = {}
        self.redactions: list[Redaction] = []

    @overload
    def job(self, function: Callable[P, R]) -> Handler[P, R]: ...

    @overload
    def job(
        self,
        *,
        kind: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        retry: Backoff = DEFAULT_BACKOFF,
        executor: str | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        kind: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        retry: Backoff = DEFAULT_BACKOFF,
        executor: str | None = None,
    ) -> Any:
        """Register a handler; *kind* is the function's name where it is not given.

        *timeout* is a timedelta or seconds; *executor* is ``loop``, ``thread`` or ``process``.
        """
        policy = Policy(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timedelta(seconds=seconds_from("timeout", timeout, least=0.001)),
            retry=retry,
            executor=_executor(executor),
        )

        def register(wrapped: Callable[..., Any]) -> Handler[Any, Any]:
            return self.add(Handler(wrapped, kind or function_of(wrapped).__name__, policy))

        return register if function is None else register(function)

    @overload
    def workflow(self, function: Callable[Concatenate[Any, P], Awaitable[R]]) -> Workflow[P, R]: ...

    @overload
    def workflow(
        self,
        *,
        kind: str | None = None,
        version: str | None = None,
        also: tuple[str, ...] = (),
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        retry: Backoff = DEFAULT_BACKOFF,
    ) -> Callable[[Callable[Concatenate[Any, P], Awaitable[R]]], Workflow[P, R]]: ...

    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        *,
        kind: str | None = None,
        version: str | None = None,
        also: tuple[str, ...] = (),
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        retry: Backoff = DEFAULT_BACKOFF,
    ) -> Any:
        """Register an ``async def`` whose first parameter is a `Run`, and whose progress outlives its worker.

        Only workers that know *version* claim its runs; *also* lists versions whose runs this code can go
        on with (an empty text for runs without one).  *timeout* is how long it may go without
        recording a step or waiting.  *max_attempts* counts timeouts, lost workers and databases; an error of
        its own ends a run at once.
        """
        policy = Policy(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timedelta(seconds=seconds_from("timeout", timeout, least=0.001)),
            retry=retry,
        )

        def register(wrapped: Callable[..., Any]) -> Workflow[Any, Any]:
            name = kind or function_of(wrapped).__name__
            if isinstance(also, str):
                raise OptionInvalid("also", also, "give a tuple of versions, such as ('1', '')")
            older = tuple(versioned(name, None if one == "" else one) for one in also)
            return self._add_workflow(Workflow(wrapped, versioned(name, version), policy, older))

        return register if function is None else register(function)

    def _add_workflow(self, workflow: Workflow[P, R]) -> Workflow[P, R]:
        self.add(workflow)
        for older in workflow.also:
            if older in self.handlers:
                msg = f"kind {older!r} is registered already: take that version out of also="
                raise InputInvalid(msg)
            self.handlers[older] = workflow
        return workflow

    def error(self, wanted: E) -> E:
        """Register an exception class, so that a run can catch it as itself when a step has raised it.

        Its arguments and attributes are kept as JSON.  What is derived from it is caught as it, where it is
        not registered itself.  Built-in exceptions need no registration.
        """
        self.errors[f"{wanted.__module__}.{wanted.__qualname__}"] = wanted
        return wanted

    def redact(self, rule: Redaction) -> Redaction:
        """Register a rule for the log of step calls: from a step's name and a value to what is logged.

        A value is ``{"args": […], "kwargs": {…}}``, a result, or an error (``{"type": …, "message": …}`` with
        its ``"args"``, ``"attributes"`` and ``"bases"``), as plain JSON data.  Rules are applied in order;
        where one fails, nothing of the value is logged.  What runs remember is not changed by them.
        """
        self.redactions.append(rule)
        return rule

    def add(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Register *handler*; raises `InputInvalid` for a kind that is taken, or that no job can have.

        Raises `OptionInvalid` for a policy that no job can have.
        """
        checked_text("kind", handler.kind, most=LONGEST_KIND)
        check_policy(handler.policy)
        if handler.kind in self.handlers:
            msg = f"kind {handler.kind!r} is registered already: give one of the two another kind"
            raise InputInvalid(msg)
        self.handlers[handler.kind] = handler
        return handler

    def handler(self, kind: str) -> Handler[Any, Any]:
        """Return the handler of *kind*; raises `UnknownKind`."""
        found = self.handlers.get(kind)
        if found is None:
            raise UnknownKind(kind, tuple(self.handlers))
        return found

    def request(self, kind: str, args: Mapping[str, Any]) -> JobRequest:
        """Return a request for a kind by name; raises `UnknownKind`, `ArgumentsInvalid`."""
        return self.handler(kind).job(**args)

    def middleware(self, function: Middleware) -> Middleware:
        """Register an async function that surrounds every handler: ``await call()`` runs what is inside.

        The first one registered is the outermost.
        """
        self.middlewares.append(function)
        return function

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async generator that surrounds the life of a worker process, for pools and clients.

        What stands before its ``yield`` runs before the first job is claimed, what follows it after the
        last one has ended; the first one registered is the outermost.  A worker whose lifespan fails does not
        start.
        """
        self.lifespans.append(asynccontextmanager(function))
        return function

    def schedule(
        self,
        name: str,
        request: JobRequest,
        *,
        cron: str | None = None,
        every: timedelta | None = None,
        timezone: str = "UTC",
        missed: str = MissedTicks.ONCE,
        max_missed: int = DEFAULT_MAX_MISSED,
        overlap: str = Overlap.ALLOW,
        **wishes: Unpack[RunnerWishes],
    ) -> Schedule:
        """Register a schedule that enqueues *request* at every tick, by its kind's policy.

        Of options of its own the request may have a queue, a priority, max_attempts, a timeout, and wishes
        for runners.

        Give *cron* (five fields, read in *timezone*) or *every*.  *missed* (skip, once, all) says what
        becomes of ticks that nobody fired in time, of which *all* makes up for at most *max_missed*;
        *overlap* (allow, skip) what becomes of a tick while the former one's job still lives.
        With *labels*, *runner*, *pin_for*, *on_loss* or *stall_limit* its jobs are for runners.
        Raises `ScheduleInvalid`, `OptionInvalid`.
        """
        if not isinstance(request, JobRequest):
            raise OptionInvalid("request", request, "give what the handler's .job(...) returns")
        if request.own is not None:
            check_names(request.own, KEPT_BY_SCHEDULES)
        if checked_text("name", name, most=200) in self.schedules:
            msg = f"schedule {name!r} is registered already: give one of the two another name"
            raise InputInvalid(msg)
        job = resolved(request, chosen(wishes, RunnerWishes.__annotations__))
        made = Schedule(
            name=name,
            kind=request.kind,
            args=request.args,
            queue=job.queue,
            priority=job.priority,
            cron=cron,
            every=every,
            timezone=timezone,
            missed=_choice(MissedTicks, "missed", missed),
            max_missed=max_missed,
            overlap=_choice(Overlap, "overlap", overlap),
            options=_stored_options(job),
        )
        check_schedule(made)
        self.schedules[name] = made
        return made

    def queues(self) -> tuple[str, ...]:
        """Return the queues that the registered kinds use, sorted."""
        return tuple(sorted({handler.policy.queue for handler in self.handlers.values()}))

    def workflows(self) -> tuple[str, ...]:
        """Return the registered kinds whose jobs are runs, sorted."""
        return tuple(sorted(kind for kind, one in self.handlers.items() if isinstance(one, Workflow)))


def _stored_options(job: NewJob) -> str:
    """Return what a schedule keeps of the policy, as JSON: its leader may run another application."""
    kept: dict[str, Any] = {"max_attempts": job.max_attempts, "timeout": job.timeout}
    if job.placement is not None:
        kept["placement"] = msgspec.Raw(job.placement.encode())
    return msgspec.json.encode(kept).decode()


def _executor(name: str | None) -> Executor | None:
    return None if name is None else _choice(Executor, "executor", name)


def _choice(choices: type[Choice], option: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise OptionInvalid(option, value, f"use one of {names}") from None
