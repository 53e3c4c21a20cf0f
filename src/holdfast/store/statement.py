"""A query as a value: text, parameters and how to read its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One SQL statement, written against schema ``holdfast``, with ``$n`` parameters.

    *reader* turns the rows into the answer.  An executor puts the configured schema in place.
    """

    name: str
    text: str
    parameters: tuple[Any, ...]
    reader: Callable[[Sequence[Row]], T]


def numbers(values: Sequence[float | None]) -> str:
    """Return *values* as the text of a PostgreSQL array, for ``$1::text::bigint[]`` and the like.

    A driver takes twenty times as long to pack a list of numbers one by one.
    """
    return "{" + msgspec.json.encode(values).decode()[1:-1] + "}"


def read_numbers(text: str) -> list[Any]:
    """Return what the text of a PostgreSQL array of numbers says; see `numbers`."""
    read: list[Any] = msgspec.json.decode("[" + text[1:-1] + "]")
    return read


def sparse(values: list[T | None]) -> list[T | None]:
    """Return *values*, or none at all where none says anything: unnest() gives as many nulls for those."""
    return values if any(value is not None for value in values) else []


def first_value(rows: Sequence[Row]) -> Any:
    """Read the first column of the first row, or None."""
    return rows[0][0] if rows else None


def column(rows: Sequence[Row]) -> list[Any]:
    """Read the first column of all rows."""
    return [row[0] for row in rows]


def count(rows: Sequence[Row]) -> int:
    """Read how many rows came back."""
    return len(rows)


def is_any(rows: Sequence[Row]) -> bool:
    """Read whether any row came back."""
    return bool(rows)
