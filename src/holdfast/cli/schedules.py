"""`holdfast schedules`: list, run, pause, resume, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.moments import ago, clock, span
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell
from holdfast.client.wire.schedules import summary
from holdfast.model.schedule import Schedule

app = group("See schedules, run, pause and delete them.")

Name = Annotated[str, typer.Argument(help="The name of the schedule.")]
COLUMNS = ("schedule", "state", "kind", "queue", "rule", "next tick", "last tick", "last job")


@app.command("list")
def list_schedules(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List schedules with their next tick."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.schedules.find()
        if as_json:
            print_json([summary(one) for one in found])
            return
        now = await operator.now()
        print_table(COLUMNS, [_row(schedule, now) for schedule in found], nothing="no schedule is stored")

    operate(context, work)


def _row(schedule: Schedule, now: datetime) -> tuple[object, ...]:
    if schedule.every is not None:
        rule = f"every {span(schedule.every)}"
    else:
        rule = f"{schedule.cron} ({schedule.timezone})"
    upcoming = None if schedule.next_tick_at is None else f"{clock(schedule.next_tick_at)} UTC"
    return (
        schedule.name,
        "paused" if schedule.paused else "active",
        schedule.kind,
        schedule.queue,
        rule,
        None if schedule.paused else upcoming,
        ago(schedule.last_tick_at, now),
        schedule.last_job_id,
    )


@app.command()
def run(
    context: typer.Context,
    name: Name,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue a job of a schedule now, beside its ticks."""
    job_id = operate(context, lambda operator: operator.schedules.run(name, reason), actor=actor)
    if as_json:
        print_json({"id": job_id})
    else:
        tell(f"job {job_id}")


@app.command()
def pause(
    context: typer.Context,
    name: Name,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a schedule make no jobs; ticks in a pause are not made up for."""
    operate(context, lambda operator: operator.schedules.pause(name, reason), actor=actor)
    _say(name, "paused", as_json)


@app.command()
def resume(
    context: typer.Context,
    name: Name,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a schedule make jobs again, from now on."""
    operate(context, lambda operator: operator.schedules.resume(name, reason), actor=actor)
    _say(name, "active", as_json)


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget a schedule that no application declares any more; jobs that it made stay."""
    operate(context, lambda operator: operator.schedules.delete(name, reason), actor=actor)
    _say(name, "deleted", as_json)


def _say(name: str, state: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "state": state})
    else:
        tell(f"schedule {name} is {state}")
