"""Schedules as they travel over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from holdfast.client.wire.shape import Why
from holdfast.model.schedule import MissedTicks, Overlap, Schedule


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule without its arguments, which may be secret and are shown with the jobs that have them."""

    name: str
    kind: str
    queue: str
    cron: str | None
    every: timedelta | None
    timezone: str
    missed: MissedTicks
    max_missed: int
    overlap: Overlap
    priority: int
    options: Any
    paused: bool
    next_tick_at: datetime | None
    last_tick_at: datetime | None
    last_job_id: int | None


def summary(schedule: Schedule) -> ScheduleSummary:
    """Return what is shown of a schedule."""
    shown = asdict(schedule) | {"options": msgspec.json.decode(schedule.options)}
    del shown["args"]
    return ScheduleSummary(**shown)


class ScheduleOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which schedule is meant, and why."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    reason: Why = None


class ScheduleDone(msgspec.Struct, frozen=True):
    """The schedule was acted on."""

    name: str


class ScheduleRun(msgspec.Struct, frozen=True):
    """The job that a schedule has made."""

    job_id: int
