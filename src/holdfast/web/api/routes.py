"""How a route is written down: what it asks of its caller and what it may come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from litestar.handlers import HTTPRouteHandler, delete, get, post
from litestar.params import PathParameter, QueryParameter

from holdfast.client.wire.shape import LARGEST_ID, Because
from holdfast.errors import HoldfastError
from holdfast.model.token import Right
from holdfast.web.problems import EVERYWHERE, documented

Id = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]
Before = Annotated[
    int | None, QueryParameter(ge=1, le=LARGEST_ID, description="Only ids below: `next` of the former page.")
]
Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="At most so many.")]

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


def reason_of(given: Because | None) -> str | None:
    """Return the reason that a request gives."""
    return None if given is None else given.reason
