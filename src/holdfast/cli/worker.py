"""`holdfast worker`: runs the jobs of an application until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli.context import Invocation, invocation

# Every value is text here: settings know what each may be, and name the flag where it is wrong.
Text = str | None


def worker(
    context: typer.Context,
    *,
    app: Annotated[Text, typer.Option(help="The application: module:name.")] = None,
    queues: Annotated[Text, typer.Option(help="Queues to work on, comma-separated; all of the app.")] = None,
    slots: Annotated[Text, typer.Option(help="Handlers that run at once per process.")] = None,
    processes: Annotated[Text, typer.Option(help="Worker processes under this command.")] = None,
    metrics_port: Annotated[
        Text, typer.Option(help="Serve /metrics here; further processes use the next.")
    ] = None,
    metrics_host: Annotated[Text, typer.Option(help="Where metrics are served; loopback by default.")] = None,
    grace: Annotated[Text, typer.Option(help="What running jobs get at a stop, such as 30s.")] = None,
    ttl: Annotated[Text, typer.Option(help="How long a lease lasts without renewal.")] = None,
    poll: Annotated[Text, typer.Option(help="How often to look for jobs unasked.")] = None,
    prefetch: Annotated[Text, typer.Option(help="The most jobs claimed beyond the slots.")] = None,
    listen: Annotated[bool | None, typer.Option("--listen/--no-listen", help="Wake up by LISTEN.")] = None,
    pgbouncer: Annotated[bool | None, typer.Option("--pgbouncer", help="A pooler stands in between.")] = None,
    name: Annotated[Text, typer.Option(help="The worker's name.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label of the worker; may be repeated.")] = None,
    log_format: Annotated[Text, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[Text, typer.Option(help="debug, info, warning or error.")] = None,
    wait_for_database: Annotated[
        bool, typer.Option("--wait-for-database", help="Wait where the database is away at the start.")
    ] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run jobs until SIGTERM, SIGINT or a drain.

    Exit codes: 0 every job was finished; 3 some were handed back; 1 failed; 2 wrong use.
    """
    given: dict[str, Any] = {
        "app": app,
        "queues": queues,
        "slots": slots,
        "processes": processes,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        "grace": grace,
        "ttl": ttl,
        "poll": poll,
        "prefetch": prefetch,
        "listen": listen,
        "pgbouncer": pgbouncer,
        "name": name,
        "labels": label or None,
        "log_format": log_format,
        "log_level": log_level,
    }
    raise typer.Exit(run(invocation(context), given, waits=wait_for_database, supervised=supervised))


def run(call: Invocation, given: dict[str, Any], *, waits: bool, supervised: bool) -> int:
    """Run one worker process or supervise several; answers the exit code."""
    settings = call.settings(**given)
    if settings.processes > 1:
        from holdfast.cli.supervising import supervise

        return asyncio.run(supervise(call, settings, given, waits=waits))
    from holdfast.cli.application import application
    from holdfast.cli.serving import serve

    return serve(settings, application(settings.app), waits=waits or supervised, supervised=supervised)
