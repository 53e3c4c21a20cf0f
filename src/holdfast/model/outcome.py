"""What an attempt came to.

A handler may return *Snooze*, *Cancel* or *Retry* instead of a result; everything else that
it returns is the job's result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.model.step import StepNote


class Outcome(StrEnum):
    """How one attempt ended."""

    COMPLETED = "completed"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run the job again after *delay* without counting a failure."""

    delay: timedelta | float
    reason: str = "snoozed by its handler"


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job as cancelled."""

    reason: str = "cancelled by its handler"


@dataclass(frozen=True, slots=True)
class Retry:
    """Count a failure and run again after *delay*, or after the kind's backoff where it is None."""

    delay: timedelta | float | None = None
    reason: str = "retry asked for by its handler"


@dataclass(frozen=True, slots=True)
class Complete:
    """Decision: the job is completed with *result* (JSON text or None)."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Decision: the job is failed for ever; *counts* says whether the attempt itself adds a failure."""

    error: str
    reason: str
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision: the job is cancelled for ever."""

    reason: str


@dataclass(frozen=True, slots=True)
class PutBack:
    """Decision: the job runs again after *delay* seconds; *counts* says whether a failure is counted."""

    outcome: Outcome
    delay: float
    counts: bool
    reason: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Decision: the run sleeps until one of its *signals* comes, one of its *families* of children ends, or
    it is *due*, by the monotonic clock: a late write does not make it late.

    *notes* are the places of its branches to be recorded with it.  *paused* keeps it asleep whatever
    comes; *stopping* says that it knows of its cancel already.
    """

    reason: str
    signals: tuple[str, ...] = ()
    families: tuple[int, ...] = ()
    due: float | None = None
    notes: tuple[StepNote, ...] = ()
    paused: bool = False
    stopping: bool = False


Transition = Complete | Fail | Stop | PutBack | Suspend
