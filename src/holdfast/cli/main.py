"""The command `holdfast`: its global options and the commands under it.

A group of commands lives in a file of its own and is added below by one line.  What is slow to import is
imported where a command needs it, so that ``holdfast --help`` answers at once.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import (
    acts,
    artifacts,
    audit,
    bench,
    command,
    deliveries,
    doctor,
    enqueue,
    jobs,
    migrate,
    queues,
    run_acts,
    runner,
    runs,
    schedules,
    service,
    settings,
    tokens,
    up,
    worker,
    workers,
)
from holdfast.cli.context import FAILED, ErrorReportingGroup, Invocation
from holdfast.cli.stdout import OutputFailed, replace_closed, standard_output

app = typer.Typer(
    name="holdfast",
    cls=ErrorReportingGroup,
    help="A control plane for work, with PostgreSQL as its only moving part.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    database_url: Annotated[
        str | None, typer.Option(help="Where PostgreSQL is; better kept in HOLDFAST_DATABASE_URL.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="The schema of the environment.")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="The service to ask instead of a database, with the token in HOLDFAST_TOKEN.", metavar="URL"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The settings file instead of holdfast.toml.", metavar="FILE")
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the global options."""
    context.obj = Invocation({"database_url": database_url, "schema": schema, "server": server}, config)


# Commands, in the order in which --help lists them.
app.command()(up.up)
app.command()(migrate.migrate)
app.command()(worker.worker)
app.command()(service.serve)
app.command()(runner.runner)
app.command()(doctor.doctor)
app.command()(bench.bench)
app.command()(settings.settings)
app.command()(enqueue.enqueue)
app.command()(command.command)
jobs.app.command()(artifacts.artifacts)
acts.add_to(jobs.app)
app.add_typer(jobs.app, name="jobs")
run_acts.add_to(runs.app)
app.add_typer(runs.app, name="runs")
app.add_typer(queues.app, name="queues")
app.add_typer(workers.app, name="workers")
app.add_typer(schedules.app, name="schedules")
app.add_typer(tokens.app, name="tokens")
app.add_typer(deliveries.app, name="deliveries")
app.command()(audit.audit)


def main() -> None:
    """Run the command line."""
    replace_closed()
    try:
        with standard_output():
            app()
    except OutputFailed as error:
        if error.errno != errno.EPIPE:
            typer.echo(f"holdfast: the output cannot be written: {error.strerror}", err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
