"""`holdfast serve`: the HTTP service."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.context import invocation

# Every value is text here: settings know what each may be, and name the flag where it is wrong.
Text = str | None


def serve(
    context: typer.Context,
    *,
    http_host: Annotated[Text, typer.Option("--host", help="The address to listen on; 127.0.0.1.")] = None,
    http_port: Annotated[Text, typer.Option("--port", help="The port to listen on; 8700.")] = None,
    app: Annotated[
        Text, typer.Option(help="Check kinds and arguments of jobs against this application: module:name.")
    ] = None,
    metrics_port: Annotated[Text, typer.Option(help="Serve /metrics here too, without a token.")] = None,
    log_format: Annotated[Text, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[Text, typer.Option(help="debug, info, warning or error.")] = None,
    wait_for_database: Annotated[
        bool, typer.Option("--wait-for-database", help="Wait where the database is away at the start.")
    ] = False,
) -> None:
    """Serve the HTTP interface and the runners until SIGTERM or SIGINT, and stand for leader.

    It runs no jobs. Beyond this machine it serves only once there is a token (`holdfast tokens create`).
    """
    settings = invocation(context).settings(
        http_host=http_host,
        http_port=http_port,
        app=app,
        metrics_port=metrics_port,
        log_format=log_format,
        log_level=log_level,
    )
    from holdfast.cli.application import application
    from holdfast.cli.serving import serve as run
    from holdfast.cli.web import Service

    known = None if settings.app is None else application(settings.app)
    raise typer.Exit(run(settings, None, waits=wait_for_database, web=Service(settings, known)))
