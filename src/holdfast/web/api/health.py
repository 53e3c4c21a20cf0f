"""What orchestrators and scrapers ask: does it live, is it ready, what are its numbers."""

from __future__ import annotations

import asyncio

from litestar import HttpMethod, Response, Router
from litestar.handlers import route
from litestar.openapi.datastructures import ResponseSpec

from holdfast.runtime.exposition import exposed
from holdfast.web.api.routes import Route, look
from holdfast.web.given import AnyRequest, GivenBacking

TEXT = "text/plain"
NOT_NOW = {503: ResponseSpec(str, description="No.", media_type=TEXT, generate_examples=False)}
# Load balancers ask by either; of an answer to HEAD the server sends no body.
ASKED = (HttpMethod.GET, HttpMethod.HEAD)


def probe(path: str) -> Route:
    """Declare a route that says yes or no to everybody."""
    return route(path, http_method=ASKED, status_code=200, right=None, media_type=TEXT, responses=NOT_NOW)


@probe("/livez")
async def livez(backing: GivenBacking) -> Response[str]:
    """Say whether the process lives; 503: only a restart helps."""
    return _said(backing.lives())


@probe("/readyz")
async def readyz(backing: GivenBacking) -> Response[str]:
    """Say whether the process does what it is there for; 503: not now."""
    return _said(backing.ready())


@look("/metrics", media_type=TEXT)
async def metrics(request: AnyRequest, backing: GivenBacking) -> Response[bytes]:
    """Give the numbers of this process to Prometheus."""
    # In a thread: the counts of queues may have to be asked for, which this loop does.
    kind, body = await asyncio.to_thread(exposed, backing.metrics.registry, request.headers.get("accept", ""))
    return Response(body, media_type=kind)


def _said(good: bool) -> Response[str]:
    return Response("ok\n" if good else "no\n", status_code=200 if good else 503, media_type=TEXT)


router = Router("/", route_handlers=[livez, readyz, metrics], tags=["health"])
