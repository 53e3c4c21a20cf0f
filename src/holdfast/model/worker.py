"""Workers and queues as rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class WorkerState(StrEnum):
    """Whether a worker may hold leases."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"
    LOST = "lost"


class RunnerGrade(StrEnum):
    """How well a runner is heard."""

    ONLINE = "online"
    LATE = "late"
    OFFLINE = "offline"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Contact:
    """How a runner is heard: *grade* after *silence* seconds; after *lost_after*, its lease, it is lost.

    It has been heard without a gap since *since*; *term* counts its registrations.  *capacity* limits what
    it holds of single queues; a drain asked for at *drain_requested_at* holds until it is resumed.
    """

    grade: RunnerGrade
    silence: float
    lost_after: float
    since: datetime | None
    term: int
    protocol: int | None
    capacity: dict[str, int]
    drain_requested_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One process or runner that holds, or held, leases.

    *running* of its jobs have begun, *claimed* ones wait in its buffer or were offered; its lease was renewed
    at *renewed_at* and runs out at *expires_at*.  *contact* is None for a process.
    """

    id: int
    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    slots: int
    state: WorkerState
    started_at: datetime
    renewed_at: datetime
    expires_at: datetime
    running: int = 0
    claimed: int = 0
    ended_at: datetime | None = None
    labels: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    contact: Contact | None = None


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A named line of jobs with its switches and its rolled-up counts.

    *max_running* limits the whole fleet, *key_limit* each concurrency key in this queue.
    """

    name: str
    paused: bool
    max_running: int | None
    key_limit: int
    keyed: bool
    retention: timedelta | None
    available: int = 0
    scheduled: int = 0
    running: int = 0
    waiting: int = 0
    oldest_available_at: datetime | None = None
    counted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What a claim must know of a queue before it chooses its way in.

    *limited*: it has a limit for the fleet, *max_running*, or jobs with concurrency keys.
    """

    name: str
    paused: bool
    limited: bool
    max_running: int | None
    key_limit: int


@dataclass(frozen=True, slots=True)
class Renewal:
    """What the holder of an attempt hears when it renews: to stop the job, to pause it, to take no more."""

    cancelled: bool = False
    paused: bool = False
    draining: bool = False
