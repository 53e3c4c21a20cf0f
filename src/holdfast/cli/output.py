"""What commands print: a table for people, or JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from holdfast.rules.telling import shown

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def cell(value: object) -> str:
    """Return *value* as it is shown on one line; None becomes a dash."""
    return "-" if value is None else shown(str(value)).replace("\n", "\\n")


def counted(number: int, noun: str) -> str:
    """Return how many there are, such as 1 job or 2,000 jobs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tell(text: str, *, err: bool = False) -> None:
    """Print *text* for people."""
    typer.echo(shown(text), err=err)


def tell_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print what is known of facts, one below the other; no further line of one looks like another one."""
    for name, value in facts:
        if value not in (None, [], {}):
            tell(f"{name:<12} {value}".replace("\n", f"\n{'':<12} "))


def json_text(value: Any) -> str:
    """Return *value* as JSON: dataclasses as objects, times in ISO 8601, durations too."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def print_json(value: Any) -> None:
    """Print *value* as JSON."""
    sys.stdout.write(f"{shown(json_text(value))}\n")


def print_json_line(value: Any) -> None:
    """Print *value* as JSON on one line, at once: for programs that read a stream."""
    sys.stdout.write(f"{shown(msgspec.json.encode(value, enc_hook=str).decode())}\n")
    sys.stdout.flush()


def print_secret(text: str) -> None:
    """Print what is shown this once; raises `OSError` unless it was written."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, nothing: str = "nothing"
) -> None:
    """Print *rows* under *columns* for people; None becomes a dash, no row becomes *nothing*."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        tell(nothing)
        return
    # Into a pipe nothing is cut: whoever greps wants the whole line.
    console = Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=not sys.stdout.isatty())
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console.print(table)
