"""Which query parameters a route has."""

from __future__ import annotations

from litestar import Litestar
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from holdfast.errors import InputInvalid
from holdfast.web.gate import AnyConnection


class Queries:
    """Refuses parameters that a route does not have: a filter that is misspelt must not find everything."""

    def __init__(self) -> None:
        self._known: dict[BaseRouteHandler, frozenset[str]] = {}

    def learn(self, made: Litestar) -> None:
        """Take note of what every route takes."""
        for route in made.routes:
            if isinstance(route, HTTPRoute):
                for handler, taken in route.route_handler_map.values():
                    self._known[handler] = frozenset(one.field_alias for one in taken.expected_query_params)

    async def __call__(self, connection: AnyConnection, _handler: BaseRouteHandler) -> None:
        """Let a request go on whose parameters are all known; raises `InputInvalid`."""
        # A guard is given a copy of the handler.
        known = self._known.get(connection.route_handler)
        if known is None or not connection.scope["query_string"]:
            return
        unknown = [name for name in connection.query_params if name not in known]
        if unknown:
            names = ", ".join(sorted(known))
            wanted = f"it takes {names}" if known else "it takes none"
            msg = f"this address knows no query parameter {unknown[0][:100]!r}: {wanted}"
            raise InputInvalid(msg)
