"""`holdfast bench`: what this database is good for, measured in a throw-away schema."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.configs import database_config
from holdfast.cli.context import invocation
from holdfast.cli.operating import YesOption
from holdfast.cli.output import JsonOption, print_json, print_table, tell
from holdfast.errors import InputInvalid

if TYPE_CHECKING:
    from holdfast.cli.trial import Figure

WARNING = "This loads the database as hard as it can for about half a minute: not for one that is in use."


def bench(
    context: typer.Context,
    *,
    jobs: Annotated[int, typer.Option(min=100, max=1_000_000, help="Jobs to enqueue and drain.")] = 20_000,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure enqueue, drain and latency on this database, in a throw-away schema.

    The schema is dropped at the end.  The suite that measures Holdfast beside other queues is in bench/.
    """
    config = database_config(invocation(context).settings(), application_name="holdfast bench")
    tell(WARNING, err=True)
    _ask(yes)
    from holdfast.cli.serving import run_on_fastest_loop
    from holdfast.cli.trial import Trial, throwaway_schema

    async def measured() -> list[Figure]:
        async with throwaway_schema(config) as own:
            return await Trial(own, jobs, lambda line: tell(line, err=True)).run()

    figures = run_on_fastest_loop(measured())
    if as_json:
        print_json(figures)
        return
    print_figures(figures)


def print_figures(figures: Sequence[Figure]) -> None:
    """Print figures for people, their values with the last digits below each other."""
    values = [_shown(one.value) for one in figures]
    width = max(map(len, values), default=0)
    rows = [(one.name, f"{value:>{width}}", one.unit) for one, value in zip(figures, values, strict=True)]
    print_table(("figure", f"{'value':>{width}}", "unit"), rows)


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        msg = "nobody can be asked here: say --yes"
        raise InputInvalid(msg)
    typer.confirm("Go on?", abort=True, err=True)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
