"""Counts requests by route, never by address, so that the number of labels is that of the routes."""

from __future__ import annotations

import time
from typing import Any

from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.runtime.events import Events


class Metering(ASGIMiddleware):
    """Emits ``request.ended`` with method, route, status and seconds; a stream ends when its reader goes."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Pass a request on and tell of its end."""
        began, status = time.perf_counter(), 500
        told: dict[str, Any] = {"method": scope.get("method", ""), "route": scope.get("path_template", "")}

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await next_app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - began
            self._events.emit("request.ended", **told, status=status, seconds=seconds)
