"""What the doctor looks at, and what it finds.  All times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: *what* is the case, and the *remedy* where it is not well."""

    check: str
    level: Level
    what: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A PostgreSQL server; *clock* is its time as seconds since 1970, *unsafe* its settings that are off."""

    major: int
    version: str
    clock: float
    is_replica: bool
    unsafe: list[str]
    connections: int
    max_connections: int


@dataclass(frozen=True, slots=True)
class LockWait:
    """A session that waits for a lock, and the sessions that hold it up."""

    pid: int
    application: str
    blockers: list[int]
    seconds: float


@dataclass(frozen=True, slots=True)
class HorizonHolder:
    """Something that keeps dead rows from being removed; *seconds* is None where nobody tells."""

    source: str
    name: str
    detail: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Rows of live_jobs; *vacuumed* is how long ago, None for never."""

    live: int
    dead: int
    vacuumed: float | None


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """A queue with jobs for workers to claim; *unknown* are kinds that none of its online workers knows."""

    name: str
    paused: bool
    max_running: int | None
    workers: int
    unknown: list[str]
    oldest: float


@dataclass(frozen=True, slots=True)
class RouteHealth:
    """What some jobs for runners ask of one, and how many *online* or *draining* runners fit that."""

    queue: str
    kind: str
    labels: list[str]
    runner: str | None
    paused: bool
    max_running: int | None
    online: int
    draining: int
    oldest: float


@dataclass(frozen=True, slots=True)
class LeaderHealth:
    """The leader, and how long the most overdue job and tick, and endpoints, have waited for one.

    *ahead* says how far in the future it was last heard, where the clock was set back.
    """

    leads: bool
    term: int
    overdue_job: float | None
    overdue_tick: float | None
    overdue_deliveries: float | None = None
    ahead: float | None = None


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that was declared lost."""

    id: int
    name: str
    ago: float
