"""How a route is written down: what it asks of its caller and what it may come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler, delete, get, post
from litestar.params import PathParameter, QueryParameter

from holdfast.errors import HoldfastError
from holdfast.model.token import Right
from holdfast.web.problems import EVERYWHERE, documented

LARGEST_ID = 2**63 - 1

Id = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]
Before = Annotated[
    int | None, QueryParameter(ge=1, le=LARGEST_ID, description="Only ids below: `next` of the former page.")
]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="At most so many.")]

Raises = tuple[type[HoldfastError], ...]
Route = Callable[[Callable[..., Any]], HTTPRouteHandler]


def look(path: str, *, raises: Raises = (), right: Right = Right.READ, **options: Any) -> Route:
    """Declare a route that changes nothing."""
    return get(path, right=right, responses=documented(EVERYWHERE + raises), **options)


def act(path: str, right: Right, *, raises: Raises = (), status: int = 200, **options: Any) -> Route:
    """Declare a route that changes something."""
    return post(path, right=right, status_code=status, responses=documented(EVERYWHERE + raises), **options)


def remove(path: str, right: Right, *, raises: Raises = (), status: int = 200, **options: Any) -> Route:
    """Declare a route that ends something."""
    return delete(path, right=right, status_code=status, responses=documented(EVERYWHERE + raises), **options)


Why = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] | None


class Because(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done; kept in the audit log."""

    reason: Why = None


def reason_of(given: Because | None) -> str | None:
    """Return the reason that a request gives."""
    return None if given is None else given.reason
