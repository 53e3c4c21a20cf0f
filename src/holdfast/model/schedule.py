"""A schedule: the rule that makes jobs, one per tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.job import DEFAULT_PRIORITY, DEFAULT_QUEUE

DEFAULT_MAX_MISSED = 100


class MissedTicks(StrEnum):
    """What to do with ticks that nobody fired in time."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What to do with a tick while the former tick's job is still live."""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A rule that makes jobs of one kind.

    Exactly one of *cron* (five fields or an alias, read in *timezone*) and *every* is set.  *args*
    and *options* are JSON text.  *max_missed* bounds how many missed ticks the policy *all* fires.
    *next_tick_at* is None until the schedule is stored.  Nothing is checked here, so that a row
    which somebody wrote by hand can still be read and shown: see ``rules.ticks.check_schedule``.
    """

    name: str
    kind: str
    args: str = "{}"
    queue: str = DEFAULT_QUEUE
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    missed: MissedTicks = MissedTicks.ONCE
    max_missed: int = DEFAULT_MAX_MISSED
    overlap: Overlap = Overlap.ALLOW
    priority: int = DEFAULT_PRIORITY
    options: str = "{}"
    paused: bool = False
    next_tick_at: datetime | None = None
    last_tick_at: datetime | None = None
    last_job_id: int | None = None
