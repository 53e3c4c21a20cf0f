"""The options that choose jobs, shared by every command that takes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.cli.ids import id_option
from holdfast.cli.moments import moment
from holdfast.cli.sharing import taking
from holdfast.model.job import JobState
from holdfast.model.selection import JobFilter

_TIME = "2026-03-01T12:00Z, or 2h for two hours ago."


def filter_options(
    *,
    state: Annotated[
        list[JobState] | None, typer.Option(help="In this state; may be repeated.", metavar="STATE")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Of this kind.", metavar="KIND")] = None,
    queue: Annotated[str | None, typer.Option(help="In this queue.", metavar="NAME")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="With this tag; may be repeated.", metavar="TAG")
    ] = None,
    since: Annotated[str | None, typer.Option(help=f"Enqueued at or after: {_TIME}", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="Enqueued before.", metavar="TIME")] = None,
    ended_since: Annotated[str | None, typer.Option(help="Ended at or after.", metavar="TIME")] = None,
    ended_until: Annotated[str | None, typer.Option(help="Ended before.", metavar="TIME")] = None,
    worker: Annotated[int | None, id_option("Held or ended by this worker.")] = None,
    text: Annotated[
        str | None,
        typer.Option(help="With this text in arguments, reason or error; slow among many.", metavar="TEXT"),
    ] = None,
    unique_key: Annotated[str | None, typer.Option(help="With this unique key.", metavar="KEY")] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(help="With this concurrency key.", metavar="KEY")
    ] = None,
) -> JobFilter:
    """Return the filter that was typed; raises `OptionInvalid`."""
    now = datetime.now(UTC)
    return JobFilter(
        states=tuple(state or ()),
        kind=kind,
        queue=queue,
        tags=tuple(tag or ()),
        since=moment("--since", since, now),
        until=moment("--until", until, now),
        ended_since=moment("--ended-since", ended_since, now),
        ended_until=moment("--ended-until", ended_until, now),
        worker_id=worker,
        text=text,
        unique_key=unique_key,
        concurrency_key=concurrency_key,
    )


filtered = taking(filter_options, into="chosen")
