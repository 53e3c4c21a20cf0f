"""The application: every kind with its handler, and what surrounds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.app.handler import Executor, Handler, JobRequest, Policy
from holdfast.app.job import Job
from holdfast.app.options import seconds_from
from holdfast.errors import InputInvalid, OptionInvalid, UnknownKind
from holdfast.model.schedule import Schedule
from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff

P = ParamSpec("P")
R = TypeVar("R")

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Call], Awaitable[Any]]


class App:
    """A registry of kinds.  Fill it at import; give it to a client and to workers."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[Any, Any]] = {}
        self.middlewares: list[Middleware] = []
        self.schedules: dict[str, Schedule] = {}

    @overload
    def job(self, function: Callable[P, R], /) -> Handler[P, R]: ...

    @overload
    def job(
        self,
        *,
        kind: str | None = None,
        queue: str = ...,
        priority: int = ...,
        max_attempts: int = ...,
        timeout: timedelta | float = ...,
        retry: Backoff = ...,
        executor: str | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        kind: str | None = None,
        timeout: timedelta | float = Policy().timeout,
        retry: Backoff = DEFAULT_BACKOFF,
        executor: str | None = None,
        **policy: Any,
    ) -> Any:
        """Register a handler; *kind* is the function's name where it is not given.

        *timeout* is a timedelta or seconds; *executor* is ``loop``, ``thread`` or ``process``.
        """

        def register(wrapped: Callable[..., Any]) -> Handler[Any, Any]:
            chosen = Policy(
                timeout=timedelta(seconds=seconds_from("timeout", timeout, least=0.001)),
                retry=retry,
                executor=_executor(executor),
                **policy,
            )
            return self.add(Handler(wrapped, kind or wrapped.__name__, chosen))

        return register if function is None else register(function)

    def add(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Register *handler*; a kind that is taken is refused."""
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

    def schedule(self, name: str, request: JobRequest, **rule: Any) -> Schedule:
        """Register a schedule that enqueues *request* at every tick; see `Schedule` for the rule's parts."""
        if name in self.schedules:
            msg = f"schedule {name!r} is registered already: give one of the two another name"
            raise InputInvalid(msg)
        defaults = {"queue": request.policy.queue, "priority": request.policy.priority}
        made = Schedule(name=name, kind=request.kind, args=request.args, **(defaults | rule))
        self.schedules[name] = made
        return made

    def queues(self) -> tuple[str, ...]:
        """Return the queues that the registered kinds use, sorted."""
        return tuple(sorted({handler.policy.queue for handler in self.handlers.values()}))


def _executor(name: str | None) -> Executor | None:
    if name is None:
        return None
    try:
        return Executor(name)
    except ValueError:
        raise OptionInvalid("executor", name, "use loop, thread or process") from None
