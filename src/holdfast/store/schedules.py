"""Statements about schedules: what the application declares, what the leader fires, what operators do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.model.schedule import MissedTicks, Overlap, Schedule
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, first_value, is_any

_SQL = blocks("schedules")


def read_clock() -> Statement[datetime]:
    """Read the moment that all statements agree on."""
    return Statement("read_clock", _SQL["read_clock"], (), first_value)


def list_schedules() -> Statement[list[Schedule]]:
    """Find all schedules, in order of name."""
    return Statement("list_schedules", _SQL["list_schedules"], (), _schedules)


_COLUMNS = (
    "name",
    "kind",
    "args",
    "queue",
    "cron",
    "every",
    "timezone",
    "missed",
    "max_missed",
    "overlap",
    "priority",
    "options",
    "paused",
    "next_tick_at",
    "last_tick_at",
    "last_job_id",
)


def _schedules(rows: Sequence[Row]) -> list[Schedule]:
    return [_schedule(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _schedule(row: dict[str, Any]) -> Schedule:
    row["every"] = None if row["every"] is None else timedelta(seconds=row["every"])
    row["missed"], row["overlap"] = MissedTicks(row["missed"]), Overlap(row["overlap"])
    return Schedule(**row)


def put_schedule(schedule: Schedule, first_tick: datetime) -> Statement[bool]:
    """Store a schedule, to begin with *first_tick* if it or its rule is new; False: nothing has changed."""
    parameters = (
        schedule.name,
        schedule.kind,
        schedule.args,
        schedule.queue,
        schedule.cron,
        None if schedule.every is None else schedule.every.total_seconds(),
        schedule.timezone,
        schedule.missed.value,
        schedule.max_missed,
        schedule.overlap.value,
        schedule.priority,
        first_tick,
        schedule.options,
    )
    return Statement("put_schedule", _SQL["put_schedule"], parameters, is_any)


def move_schedule(term: int, schedule: Schedule, next_tick_at: datetime) -> Statement[bool | None]:
    """Move *schedule* on as the first step of firing it; None: somebody else did.

    Answers whether the job of its former tick still lives.
    """
    every = None if schedule.every is None else schedule.every.total_seconds()
    rule = (schedule.cron, every, schedule.timezone)
    parameters = (term, schedule.name, schedule.next_tick_at, next_tick_at, *rule)
    return Statement("move_schedule", _SQL["move_schedule"], parameters, first_value)


def enqueue_ticks(name: str, ticks: Sequence[datetime]) -> Statement[list[int]]:
    """Enqueue one job for each tick, in the transaction of `move_schedule`; answers their ids in order."""
    return Statement(
        "enqueue_ticks", _SQL["enqueue_ticks"], (name, [tick.isoformat() for tick in ticks]), column
    )


def note_fired(name: str, tick: datetime, job_id: int) -> Statement[bool]:
    """Remember the last tick that was fired, and its job."""
    return Statement("note_fired", _SQL["note_fired"], (name, tick, job_id), is_any)


def delete_schedule(name: str) -> Statement[str | None]:
    """Forget a schedule; answers what it was as JSON text, None where there is none."""
    return Statement("delete_schedule", _SQL["delete_schedule"], (name,), first_value)


def pause_schedule(name: str, paused: bool) -> Statement[str | None]:
    """Pause or resume a schedule; answers what changed as JSON text, None where there is none."""
    return Statement("pause_schedule", _SQL["pause_schedule"], (name, paused), first_value)


def run_schedule(name: str) -> Statement[int | None]:
    """Enqueue a job of a schedule now; answers its id, or None where there is no such schedule."""
    return Statement("run_schedule", _SQL["run_schedule"], (name,), first_value)
