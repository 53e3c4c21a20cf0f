"""Event streams: what happens to one job, in one queue, or anywhere, as it happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated

import msgspec
from litestar import Router
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream
from litestar.types import Scope

from holdfast import errors
from holdfast.client.follow import AWAY, JobFollower, Told, WideFollower
from holdfast.web.api.routes import Id, look
from holdfast.web.gate import Gate
from holdfast.web.given import GivenBacking, GivenGate

MEDIA_TYPE = "text/event-stream"
# A proxy is not to collect events until it has a page of them.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Since = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID", required=False, max_length=1000, description="The last id that was heard."
    ),
]


@look("/jobs/{job_id:int}/events", raises=(errors.JobNotFound,), media_type=MEDIA_TYPE)
async def follow_job(
    job_id: Id,
    backing: GivenBacking,
    gate: GivenGate,
    scope: Scope,
    logs: Annotated[bool, QueryParameter(description="What it logs too.")] = True,
    since: Since = None,
) -> Stream:
    """Tell how a job stands, what changes and what it logs, as server-sent events, until it has ended."""
    follower = JobFollower(backing.feed, backing.database, job_id, logs=logs, since=since)
    await follower.check()
    return _stream(follower.tell(), gate, scope)


@look("/events", media_type=MEDIA_TYPE)
async def follow_all(
    backing: GivenBacking,
    gate: GivenGate,
    scope: Scope,
    queue: Annotated[str | None, QueryParameter(max_length=100, description="Of this queue alone.")] = None,
    since: Since = None,
) -> Stream:
    """Tell what changes in one queue or in all, as server-sent events, for as long as somebody listens."""
    follower = WideFollower(backing.feed, backing.database, queue, since=since)
    return _stream(follower.tell(), gate, scope)


def _stream(told: AsyncGenerator[Told | None, None], gate: Gate, scope: Scope) -> Stream:
    return Stream(_lines(told, gate, scope), media_type=MEDIA_TYPE, headers=HEADERS)


async def _lines(told: AsyncGenerator[Told | None, None], gate: Gate, scope: Scope) -> AsyncIterator[bytes]:
    async with aclosing(told):
        try:
            async for one in told:
                if (refusal := await _refusal(gate, scope)) is not None:
                    yield _dropped(refusal)
                    return
                yield b": nothing new\n\n" if one is None else _event(one)
        except errors.DatabaseUnavailable:
            yield _dropped(AWAY)


async def _refusal(gate: Gate, scope: Scope) -> str | None:
    """Return why a reader may hear no more; None: it may."""
    try:
        await gate.check(scope)
    except errors.DatabaseUnavailable:
        # What is told was read before: whether the token has ended since will be seen when it is back.
        return None
    except errors.HoldfastError as error:
        return str(error)
    return None


def _dropped(detail: str) -> bytes:
    """Return the end of a stream that goes on, if at all, from the last id that was told."""
    return _event(Told("dropped", {"detail": detail}, ""))


def _event(told: Told) -> bytes:
    place = f"id: {told.id}\n" if told.id else ""
    return f"event: {told.name}\n{place}data: ".encode() + msgspec.json.encode(told.data) + b"\n\n"


router = Router("/", route_handlers=[follow_job, follow_all], tags=["live"])
