"""The express lane: what runners ask all day, without the general way of the framework.

A route takes it by saying ``express=True``.  It is declared once, in ``api/``, and stands in the schema like
every other; the lane calls the same function behind the same gate, reads bodies with the same decoder and
answers errors with the same problems.  It takes only requests as runners make them: whatever is unusual about
an address, a header or a length goes the general way, and is answered or refused there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Response
from litestar.routes import HTTPRoute
from litestar.types import HTTPScope, Receive, Send

from holdfast.errors import BodyInvalid, HoldfastError
from holdfast.model.problem import MEDIA_TYPE, Problem
from holdfast.runtime.events import Events
from holdfast.web.gate import Gate
from holdfast.web.problems import fault_problem, problem_of
from holdfast.web.requests import decoded
from holdfast.web.stops import Stop, stops

T = TypeVar("T")
_JSON = b"application/json"
# What others write down, too, of a request whose caller did not wait for its answer; nobody reads it here.
HUNG_UP = 499


class _HungUp(Exception):
    """Nobody listens for the answer any more."""


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
        routes = [route for route in made.routes if isinstance(route, HTTPRoute)]
        self.stops = [stop for route in routes for stop in stops(route)]

    # The framework and the server have types of their own for the same three things.
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or let the framework do it."""
        if scope["type"] == "http" and (found := self._found(scope)) is not None:
            await self._serve(*found, scope, receive, send)
        else:
            await self._made(scope, receive, send)

    def _found(self, scope: HTTPScope) -> tuple[Stop, dict[str, Any]] | None:
        """Return the stop of a request and what it tells there; None: it goes the general way."""
        for stop in self.stops:
            if (facts := stop.facts(scope, self._body_limit)) is not None:
                return stop, facts
        return None

    async def _serve(
        self, stop: Stop, facts: Mapping[str, Any], scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        began, answer = time.perf_counter(), _Answer(500, b"")
        try:
            answer = await self._answer(stop, facts, scope, receive)
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
        self, stop: Stop, facts: Mapping[str, Any], scope: HTTPScope, receive: Receive
    ) -> _Answer:
        scope["litestar_app"] = self._made
        try:
            await self._gate.admit(scope, stop.right)
            body = await _body(receive)
            brought = {"body": body} if stop.takes is None else {"data": decoded(body, stop.takes)}
            said = stop.handler.fn(**brought, **facts, scope=scope)
            return _told(stop, await (_while_heard(said, receive) if stop.waits else said))
        except _HungUp:
            return _Answer(HUNG_UP, b"")
        except HoldfastError as error:
            return _problem(*problem_of(error, self._events, scope))
        except Exception as error:
            return _problem(fault_problem(error, self._events, scope["path"]), {})


async def _while_heard(doing: Awaitable[T], receive: Receive) -> T:
    """Return what *doing* comes to; cancels it and raises `_HungUp` where the caller hangs up before."""
    done, gone = asyncio.ensure_future(doing), asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise _HungUp
        return done.result()
    finally:
        gone.cancel()
        done.cancel()
        await asyncio.gather(done, gone, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _told(stop: Stop, said: Any) -> _Answer:
    if isinstance(said, Response):
        return _Answer(stop.status, msgspec.json.encode(said.content), headers=said.headers)
    return _Answer(stop.status, msgspec.json.encode(said))


def _problem(problem: Problem, headers: Mapping[str, str]) -> _Answer:
    return _Answer(problem.status, msgspec.json.encode(problem), MEDIA_TYPE.encode(), headers)


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            # What the route would do with a part, or with nothing, nobody has asked for.
            msg = "it ends before its length"
            raise BodyInvalid(msg)
        parts.append(message["body"])
        if not message.get("more_body", False):
            return b"".join(parts)
