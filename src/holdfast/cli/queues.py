"""`holdfast queues`: list, pause, resume, limits, retention."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.moments import ago, seconds, span
from holdfast.cli.operating import ActorOption, AnyOperator, CreateOption, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell
from holdfast.errors import OptionInvalid
from holdfast.model.worker import QueueRecord

app = group("See queues, pause and limit them, shorten their history.")

# Else -1 would be taken for an option that does not exist.
BELOW_ZERO = {"ignore_unknown_options": True}

Name = Annotated[str, typer.Argument(help="The name of the queue.")]
COLUMNS = (
    "queue",
    "state",
    "available",
    "oldest",
    "scheduled",
    "running",
    "limit",
    "per key",
    "waiting",
    "counted",
)


@app.command("list")
def list_queues(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List queues with their limits and counts; the leader counts every few seconds."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.queues.find()
        if as_json:
            print_json(found)
            return
        now = await operator.now()
        print_table(COLUMNS, [_row(queue, now) for queue in found], nothing="no queue is known yet")

    operate(context, work)


def _row(queue: QueueRecord, now: datetime) -> tuple[object, ...]:
    oldest = None if queue.oldest_available_at is None else span(now - queue.oldest_available_at)
    return (
        queue.name,
        "paused" if queue.paused else "open",
        queue.available,
        oldest,
        queue.scheduled,
        queue.running,
        queue.max_running,
        queue.key_limit if queue.keyed else None,
        queue.waiting,
        ago(queue.counted_at, now),
    )


@app.command()
def pause(
    context: typer.Context,
    name: Name,
    *,
    create: CreateOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let nobody claim from a queue; what runs goes on."""
    _change(context, lambda operator: operator.queues.pause(name, reason, create=create), actor, as_json)


@app.command()
def resume(
    context: typer.Context,
    name: Name,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let workers claim from a queue again."""
    _change(context, lambda operator: operator.queues.resume(name, reason), actor, as_json)


@app.command(context_settings=BELOW_ZERO)
def limit(
    context: typer.Context,
    name: Name,
    most: Annotated[
        str, typer.Argument(help="How many jobs of the queue may run at once, or none.", metavar="N|none")
    ],
    *,
    create: CreateOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit how many jobs of a queue run at once in the whole fleet; none lifts the limit."""
    number = None if most == "none" else _whole(most)
    _change(
        context, lambda operator: operator.queues.limit(name, number, reason, create=create), actor, as_json
    )


@app.command("key-limit", context_settings=BELOW_ZERO)
def key_limit(
    context: typer.Context,
    name: Name,
    most: Annotated[int, typer.Argument(help="How many jobs of one key may run at once.", metavar="N")],
    *,
    create: CreateOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit how many jobs of each concurrency key of a queue run at once in the whole fleet."""
    _change(
        context, lambda operator: operator.queues.key_limit(name, most, reason, create=create), actor, as_json
    )


@app.command()
def retention(
    context: typer.Context,
    name: Name,
    length: Annotated[
        str,
        typer.Argument(help="How long ended jobs are kept, such as 36h, or none.", metavar="DURATION|none"),
    ],
    *,
    create: CreateOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the ended jobs of a queue for a shorter time than all others; none ends that."""
    kept = None if length == "none" else seconds("retention", length)
    _change(
        context,
        lambda operator: operator.queues.retention(name, kept, reason, create=create),
        actor,
        as_json,
    )


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise OptionInvalid("limit", text, "give a whole number, or none")
    return int(text)


def _change(
    context: typer.Context,
    change: Callable[[AnyOperator], Awaitable[QueueRecord]],
    actor: str | None,
    as_json: bool,
) -> None:
    queue = operate(context, change, actor=actor)
    if as_json:
        print_json(queue)
        return
    state = "paused" if queue.paused else "open"
    most = "without limit" if queue.max_running is None else f"limited to {queue.max_running} running"
    kept = "" if queue.retention is None else f", history kept for {span(queue.retention)}"
    tell(f"queue {queue.name} is {state}, {most}, {queue.key_limit} for each key{kept}")
