"""The stops of the express lane: what a route that says ``express=True`` declares, read once at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, KwargDefinition
from litestar.routes import HTTPRoute
from litestar.types import Empty, HTTPScope
from litestar.typing import FieldDefinition

from holdfast.model.token import Right

_JSON = b"application/json"
# No number that a route takes has more digits.
_LONGEST_NUMBER = 19
_PART = "([^/]+)"


@dataclass(frozen=True, slots=True)
class Fact:
    """A number or a word that a request tells in its address or in a header; None means that it has to."""

    name: str
    is_number: bool
    least: int
    most: int
    default: Any = None

    def read(self, text: str | None) -> Any:
        """Return what is told; None where the route would not take it."""
        if text is None:
            return self.default
        if not self.is_number:
            return text if len(text) <= self.most else None
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER:
            return None
        number = int(text)
        return number if self.least <= number <= self.most else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A route that the lane serves; *takes* is the type of its JSON, None where it takes bytes.

    One that *waits* for something to tell is left as soon as nobody listens.
    """

    handler: HTTPRouteHandler
    method: str
    template: str
    address: re.Pattern[str]
    parts: Sequence[Fact]
    headers: Sequence[tuple[bytes, Fact]]
    takes: Any
    most: int | None
    right: Right
    status: int
    waits: bool

    def facts(self, scope: HTTPScope, limit: int) -> dict[str, Any] | None:
        """Return what a request tells, by the names of the route; None: it is no plain request for it."""
        met = self.address.fullmatch(scope["path"])
        if met is None or scope["method"] != self.method or scope["query_string"]:
            return None
        headers = dict(scope["headers"])
        if not self._is_plain(headers, self.most or limit):
            return None
        facts = {fact.name: fact.read(text) for fact, text in zip(self.parts, met.groups(), strict=True)}
        for name, fact in self.headers:
            told = headers.get(name)
            facts[fact.name] = fact.read(None if told is None else told.decode("latin-1"))
        return None if None in facts.values() else facts

    def _is_plain(self, headers: dict[bytes, bytes], most: int) -> bool:
        """Tell whether a request brings what the route takes, of a length that is told and allowed."""
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or len(length) > _LONGEST_NUMBER or int(length) > most:
            return False
        if self.takes is None:
            return True
        is_json = headers.get(b"content-type") == _JSON and b"content-encoding" not in headers
        return is_json and int(length) > 0


def stops(route: HTTPRoute) -> Iterator[Stop]:
    """Return those of a route."""
    for handler in route.route_handlers:
        if handler.opt.get("express"):
            given = handler.parsed_fn_signature.parameters
            data, most = given.get("data"), handler.request_max_body_size
            yield Stop(
                handler=handler,
                method=next(iter(handler.http_methods)),
                template=route.path_format,
                address=re.compile(_pattern(route)),
                parts=[_fact(given[name]) for name in route.path_parameters],
                headers=list(_headers(given.values())),
                takes=None if data is None else data.annotation,
                most=most if isinstance(most, int) else None,
                right=handler.opt["right"],
                status=handler.status_code,
                waits=bool(handler.opt.get("waits")),
            )


def _pattern(route: HTTPRoute) -> str:
    parts = (re.escape(part) if isinstance(part, str) else _PART for part in route.path_components)
    return "/" + "/".join(parts)


def _headers(given: Iterable[FieldDefinition]) -> Iterator[tuple[bytes, Fact]]:
    for one in given:
        known = one.kwarg_definition
        if isinstance(known, HeaderParameter) and known.name is not None:
            yield known.name.lower().encode(), _fact(one)


def _fact(given: FieldDefinition) -> Fact:
    known, is_number = given.kwarg_definition, given.annotation is int
    least, most = (
        (known.ge, known.le if is_number else known.max_length)
        if isinstance(known, KwargDefinition)
        else (0, 0)
    )
    default = None if given.default is Empty else given.default
    return Fact(given.name, is_number, int(least or 0), int(most or 0), default)
