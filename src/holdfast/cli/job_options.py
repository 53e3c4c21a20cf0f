"""The options of an enqueue as flags."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.moments import exact, seconds
from holdfast.cli.sharing import taking
from holdfast.client.intake import json_object

Labels = Annotated[
    list[str] | None, typer.Option(metavar="LABEL", help="A runner needs it; may be repeated.")
]
StallLimit = Annotated[
    str | None,
    typer.Option(help="Take it from a runner after 30m without a sign of life."),
]


def job_options(
    *,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="The queue.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="0-9", help="0 goes first.")] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="How often it may fail.")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="For one attempt, of a run between two records, such as 90s.")
    ] = None,
    run_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before 2026-03-01T12:00Z.")] = None,
    delay: Annotated[str | None, typer.Option(help="Not before 5m have passed.")] = None,
    retry: Annotated[
        str | None, typer.Option(metavar="JSON", help="How long to rest after failures.")
    ] = None,
    unique_key: Annotated[str | None, typer.Option(metavar="KEY", help="One live job may have it.")] = None,
    unique_policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Where one has it: keep, replace or reject.")
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Jobs with the same one are limited.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag; may be repeated.")] = None,
    meta: Annotated[str | None, typer.Option(metavar="JSON", help="Meta data as an object.")] = None,
    label: Labels = None,
    runner: Annotated[str | None, typer.Option(metavar="NAME", help="Only this runner may take it,")] = None,
    pin_for: Annotated[str | None, typer.Option(help="... for 10m; then others may.")] = None,
    on_loss: Annotated[
        str | None, typer.Option(metavar="POLICY", help="If its runner is lost: retry, fail or hold.")
    ] = None,
    stall_limit: StallLimit = None,
) -> dict[str, Any]:
    """Return the options that were given, by name; raises `InputInvalid`."""
    options = {
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "timeout": seconds("--timeout", timeout),
        "run_at": exact("--run-at", run_at),
        "delay": seconds("--delay", delay),
        "retry": json_object("--retry", retry),
        "unique_key": unique_key,
        "unique_policy": unique_policy,
        "concurrency_key": concurrency_key,
        "tags": tag or None,
        "meta": json_object("--meta", meta),
        "labels": label or None,
        "runner": runner,
        "pin_for": seconds("--pin-for", pin_for),
        "on_loss": on_loss,
        "stall_limit": seconds("--stall-limit", stall_limit),
    }
    return {name: value for name, value in options.items() if value is not None}


with_job_options = taking(job_options, into="given")
