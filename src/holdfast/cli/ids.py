"""Ids on the command line: what no id can be is wrong use, before a database or a service is asked."""

from __future__ import annotations

from typing import Any

import typer

from holdfast.app.options import LARGEST_ID


def id_argument(about: str, metavar: str = "ID") -> Any:
    """Return an argument that takes an id, or several."""
    return typer.Argument(help=about, metavar=metavar, callback=_possible)


def id_option(about: str) -> Any:
    """Return an option that takes an id."""
    return typer.Option(help=about, metavar="ID", callback=_possible)


# Not by `min` and `max`: --help would tell of 9223372036854775807 behind each of them.
def _possible(given: Any) -> Any:
    for one in given if isinstance(given, list) else [given]:
        if one is not None and not 1 <= one <= LARGEST_ID:
            msg = f"{one} is no id: give a whole number from 1 to {LARGEST_ID}"
            raise typer.BadParameter(msg)
    return given
