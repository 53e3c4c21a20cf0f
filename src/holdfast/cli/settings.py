"""`holdfast settings`: what is in force, and who said so."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import typer

from holdfast.cli.context import invocation
from holdfast.cli.output import JsonOption, print_json, print_table
from holdfast.runtime.settings import SECRETS, Loaded, Settings
from holdfast.store.address import HIDDEN, shown_address

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def settings(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Show every setting with its value and its source; passwords are left out."""
    loaded = invocation(context).loaded()
    rows = [
        {"setting": one.name, "value": shown(loaded, one.name), "source": loaded.sources[one.name]}
        | {"about": one.metadata["about"]}
        for one in fields(Settings)
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("setting", "value", "source", "about"),
        [(row["setting"], _text(row["value"]), row["source"], row["about"]) for row in rows],
    )


def shown(loaded: Loaded, name: str) -> Any:
    """Return the value of a setting as it may be shown."""
    value = getattr(loaded.settings, name)
    if name not in SECRETS or value is None:
        return value
    return shown_address(value) if name == "database_url" else HIDDEN


def _text(value: Any) -> str | None:
    if isinstance(value, tuple):
        return ",".join(value) or None
    if isinstance(value, bool):
        return str(value).lower()
    return _length(value) if isinstance(value, float) else value


def _length(seconds: float) -> str:
    """Return a duration exactly, as a setting could be given: 30s, 14d."""
    for size, unit in _UNITS:
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:.10g}s"
