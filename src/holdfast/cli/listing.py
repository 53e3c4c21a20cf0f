"""What the commands share that list things page by page, newest first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Protocol, TypeVar

import typer

from holdfast.cli.ids import id_option
from holdfast.cli.operating import AnyOperator, operate
from holdfast.cli.output import print_json, print_table, tell

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]
BeforeOption = Annotated[int | None, id_option("Only ids below: the last id of the former page.")]


class Numbered(Protocol):
    """Something with an id, by which pages follow each other."""

    @property
    def id(self) -> int:
        """Its id."""


One = TypeVar("One", bound=Numbered)


@dataclass(frozen=True, slots=True)
class Listing(Generic[One]):
    """How a page looks to people: *row* makes a row of each thing as of now, *nothing* stands for no row."""

    columns: Sequence[str]
    row: Callable[[One, datetime], Sequence[object]]
    nothing: str


def show_page(
    context: typer.Context,
    find: Callable[[AnyOperator], Awaitable[Sequence[One]]],
    listing: Listing[One],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Print what *find* answers; a page of *limit* tells where the next one begins."""

    async def work(operator: AnyOperator) -> None:
        found = await find(operator)
        if as_json:
            print_json(found)
            return
        now = await operator.now()
        rows = [listing.row(one, now) for one in found]
        print_table(listing.columns, rows, nothing=listing.nothing)
        if len(found) == limit:
            tell(f"more: --before {found[-1].id}")

    operate(context, work)
