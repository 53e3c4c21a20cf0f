"""The express lane: what runners ask all day, without the general way of the framework.

A route takes it by saying ``express=True``.  It is declared once, in ``api/``, and stands in the schema like
every other; the lane calls the same function behind the same gate, reads bodies with the same decoder and
answers errors with the same problems.  It takes only requests as runners make them: whatever is unusual about
an address, a header or a length goes the general way, and is answered or refused there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.params import KwargDefinition
from litestar.routes import HTTPRoute
from litestar.types import HTTPScope, Receive, Send
from litestar.typing import FieldDefinition

from holdfast.errors import HoldfastError
from holdfast.model.problem import MEDIA_TYPE, Problem
from holdfast.model.token import Right
from holdfast.runtime.events import Events
from holdfast.web.gate import Gate
from holdfast.web.problems import fault_problem, problem_of
from holdfast.web.requests import decoded

# A number in an address: no sign, no zero before it, and never too long to be read.
_NUMBER = r"([1-9][0-9]{0,18})"
_LONGEST_LENGTH = 10
_JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class Stop:
    """A route that the lane serves: its *address* as a pattern, and how it is answered.

    *numbers* are the names of what stands in the address, with the largest of each.
    """

    handler: HTTPRouteHandler
    method: str
    template: str
    address: re.Pattern[str]
    numbers: Mapping[str, int]
    takes: Any
    right: Right
    status: int


@dataclass(slots=True)
class _Answer:
    """What a request came to."""

    status: int
    body: bytes
    media_type: bytes = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    async def give(self, send: Send) -> None:
        headers = [(b"content-type", self.media_type), (b"content-length", b"%d" % len(self.body))]
        headers += [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class Express:
    """An ASGI application in front of *made*: serves the stops itself and hands on everything else."""

    def __init__(self, made: Litestar, gate: Gate, events: Events, body_limit: int) -> None:
        self._made, self._gate, self._events, self._body_limit = made, gate, events, body_limit
        self.stops = [stop for route in made.routes if isinstance(route, HTTPRoute) for stop in _stops(route)]
        self._fixed = {(stop.method, stop.template): stop for stop in self.stops if not stop.numbers}
        self._varying = [stop for stop in self.stops if stop.numbers]

    # The framework and the server have types of their own for the same three things.
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or let the framework do it."""
        if scope["type"] == "http" and (found := self._found(scope)) is not None:
            await self._serve(*found, scope, receive, send)
        else:
            await self._made(scope, receive, send)

    def _found(self, scope: HTTPScope) -> tuple[Stop, dict[str, int]] | None:
        """Return the stop of a request and the numbers in its address; None: it goes the general way."""
        method, path = scope["method"], scope["path"]
        if not scope["query_string"] and self._is_plain(scope):
            if (stop := self._fixed.get((method, path))) is not None:
                return stop, {}
            for stop in self._varying:
                if stop.method == method and (met := stop.address.fullmatch(path)) is not None:
                    numbers = dict(zip(stop.numbers, map(int, met.groups()), strict=True))
                    is_fit = all(number <= stop.numbers[name] for name, number in numbers.items())
                    return (stop, numbers) if is_fit else None
        return None

    def _is_plain(self, scope: HTTPScope) -> bool:
        """Tell whether a request brings JSON of a length that is told, and allowed."""
        length, is_json = b"", False
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"content-type":
                is_json = value == _JSON
            elif name == b"content-encoding":
                return False
        return is_json and length.isdigit() and 0 < int(length[:_LONGEST_LENGTH]) <= self._body_limit

    async def _serve(
        self, stop: Stop, numbers: Mapping[str, int], scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        began, answer = time.perf_counter(), _Answer(500, b"")
        try:
            answer = await self._answer(stop, numbers, scope, receive)
            await answer.give(send)
        finally:
            seconds = time.perf_counter() - began
            self._events.emit(
                "request.ended",
                method=stop.method,
                route=stop.template,
                status=answer.status,
                seconds=seconds,
            )

    async def _answer(
        self, stop: Stop, numbers: Mapping[str, int], scope: HTTPScope, receive: Receive
    ) -> _Answer:
        scope["litestar_app"] = self._made
        try:
            await self._gate.admit(scope, stop.right)
            data = decoded(await _body(receive), stop.takes)
            said = await stop.handler.fn(data=data, scope=scope, **numbers)
            return _Answer(stop.status, msgspec.json.encode(said))
        except HoldfastError as error:
            return _problem(*problem_of(error, self._events, scope["path"]))
        except Exception as error:
            return _problem(fault_problem(error, self._events, scope["path"]), {})


def _stops(route: HTTPRoute) -> Iterator[Stop]:
    for handler in route.route_handlers:
        if not handler.opt.get("express"):
            continue
        given = handler.parsed_fn_signature.parameters
        yield Stop(
            handler=handler,
            method=next(iter(handler.http_methods)),
            template=route.path_format,
            address=re.compile(_pattern(route)),
            numbers={name: _largest(given[name]) for name in route.path_parameters},
            takes=given["data"].annotation,
            right=handler.opt["right"],
            status=handler.status_code,
        )


def _pattern(route: HTTPRoute) -> str:
    parts = (re.escape(part) if isinstance(part, str) else _NUMBER for part in route.path_components)
    return "/" + "/".join(parts)


def _largest(given: FieldDefinition) -> int:
    known = given.kwarg_definition
    return int(known.le) if isinstance(known, KwargDefinition) and known.le is not None else 0


def _problem(problem: Problem, headers: Mapping[str, str]) -> _Answer:
    return _Answer(problem.status, msgspec.json.encode(problem), MEDIA_TYPE.encode(), headers)


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message["body"])
        if not message.get("more_body", False):
            return b"".join(parts)
