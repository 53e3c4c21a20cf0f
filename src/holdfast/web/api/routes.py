"""How a route is written down: what it asks of its caller and what it may come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from litestar.handlers import HTTPRouteHandler, get, post
from litestar.params import Parameter, PathParameter, QueryParameter

from holdfast.client.wire.shape import LARGEST_ID, Because
from holdfast.errors import HoldfastError
from holdfast.model.token import Right
from holdfast.web.problems import EVERYWHERE, documented

LARGEST_ATTEMPT = 2**31 - 1

Id = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]
Attempt = Annotated[int, Parameter(ge=1, le=LARGEST_ATTEMPT)]
Before = Annotated[
    int | None, QueryParameter(ge=1, le=LARGEST_ID, description="Only ids below: `next` of the former page.")
]
Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="At most so many.")]


Raises = tuple[type[HoldfastError], ...]
Route = Callable[[Callable[..., Any]], HTTPRouteHandler]


class Numbered(Protocol):
    """A row of a listing."""

    @property
    def id(self) -> int:
        """Its id, by which the listing is ordered."""


def look(path: str, *, raises: Raises = (), right: Right = Right.READ, **options: Any) -> Route:
    """Declare a route that changes nothing."""
    return get(path, right=right, responses=documented(EVERYWHERE + raises), **options)


def act(path: str, right: Right, *, raises: Raises = (), status: int = 200, **options: Any) -> Route:
    """Declare a route that changes something."""
    responses = documented(EVERYWHERE + raises, takes_body=True)
    return post(path, right=right, status_code=status, responses=responses, **options)


def next_page(found: Sequence[Numbered], limit: int) -> int | None:
    """Return where the page behind *found* begins; None: nothing is behind it."""
    return found[-1].id if len(found) == limit else None


def reason_of(given: Because | None) -> str | None:
    """Return the reason that a request gives."""
    return None if given is None else given.reason
