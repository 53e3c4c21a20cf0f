"""`holdfast runner`: runs commands, and kinds of an application, for a server it reaches over HTTPS."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.context import invocation

# Every value is text here: settings know what each may be, and name the flag where it is wrong.
Text = str | None


def runner(
    context: typer.Context,
    *,
    slots: Annotated[Text, typer.Option(help="Assignments that run at once.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label of the runner; may be repeated.")] = None,
    queues: Annotated[Text, typer.Option(help="Queues to work on, comma-separated.")] = None,
    capacity: Annotated[
        list[str] | None, typer.Option(help="queue=N: at most N of this queue; may be repeated.")
    ] = None,
    app: Annotated[Text, typer.Option(help="Run this application's kinds too: module:name.")] = None,
    name: Annotated[Text, typer.Option(help="The runner's name; the host's where it is not given.")] = None,
    folder: Annotated[Text, typer.Option(help="Where the runner keeps its token and its work.")] = None,
    grace: Annotated[Text, typer.Option(help="What running programs get at a stop, such as 10m.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Leave after one assignment.")] = False,
    idle_exit: Annotated[Text, typer.Option(help="Leave after so long without an assignment.")] = None,
    metrics_port: Annotated[Text, typer.Option(help="Serve /metrics, /livez and /readyz here.")] = None,
    metrics_host: Annotated[Text, typer.Option(help="Where metrics are served; loopback by default.")] = None,
    log_format: Annotated[Text, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[Text, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run commands for the service at --server until SIGTERM or SIGINT; no database is needed here.

    The token that registers it comes from HOLDFAST_TOKEN and is needed once: a runner keeps its own.
    Exit codes: 0 every program came to its end; 3 some were handed back; 1 failed; 2 wrong use.
    """
    given: dict[str, Any] = {
        "slots": slots,
        "labels": label or None,
        "queues": queues,
        "app": app,
        "name": name,
        "folder": folder,
        "grace": grace,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        "log_format": log_format,
        "log_level": log_level,
    }
    settings = invocation(context).settings(**given)
    from holdfast.cli.remote import RunnerProcess, agent_config

    config = agent_config(settings, capacity=capacity or (), once=once, idle_exit=idle_exit)
    raise typer.Exit(RunnerProcess(config, settings).run())
