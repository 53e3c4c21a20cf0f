"""A job: what was asked, where it stands, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_TIMEOUT = timedelta(minutes=5)

# Where an attempt stands: in which bundle, how many jobs that had, and which of them this is, from 0.
Tie = tuple[int, int, int]


class JobState(StrEnum):
    """Where a job stands.  The last three are for ever."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    CLAIMED = "claimed"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True for a job that has ended."""
        return self in FINAL_STATES


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
LIVE_STATES = frozenset(JobState) - FINAL_STATES


class UniquePolicy(StrEnum):
    """What to do when a live job already holds the unique key."""

    KEEP = "keep"
    REPLACE = "replace"
    REJECT = "reject"


class Enqueued(StrEnum):
    """What an enqueue came to."""

    NEW = "new"
    KEPT = "kept"
    REPLACED = "replaced"


class JobHandle(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: the job's id and whether the job is new."""

    id: int
    status: Enqueued = Enqueued.NEW


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job as it goes into the database: every option resolved and checked.

    *args* and *placement* are JSON text, the latter None for a job that any worker may take; *timeout* and
    *delay* are seconds; *delay* counts from the database's now
    and is ignored where *run_at* is given.
    """

    kind: str
    args: str
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: float = DEFAULT_TIMEOUT.total_seconds()
    run_at: datetime | None = None
    delay: float | None = None
    retry: str | None = None
    unique_key: str | None = None
    unique_policy: UniquePolicy = UniquePolicy.KEEP
    concurrency_key: str | None = None
    tags: list[str] = msgspec.field(default_factory=list)
    meta: str = "{}"
    parent_id: int | None = None
    trace: str | None = None
    placement: str | None = None


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """One attempt as the claim hands it to a worker.

    *args* and *retry* are JSON text as stored; *timeout* is in seconds; *id* and *attempt* together
    are the fence that every later write names.  *started* is False for a job that waits in the buffer.
    *enqueued* and *claimed* are the database's times in seconds since 1970, and *tags* is None where there
    are none: a driver makes numbers in less time than dates and lists, for which most jobs have no use.
    *suspect* is True where the worker of a former attempt died that seemed not to have begun.
    *ahead* is True for a job without a permit of its limited queue; one that *is_held* was claimed so before,
    and has one now.
    *tie* says where it stands in a bundle; None: it has a row of its own.
    *key* is its concurrency key where this worker has to wait for others of it; one that is *ahead* is behind
    one of them.
    """

    id: int
    attempt: int
    failures: int
    kind: str
    queue: str
    priority: int
    max_attempts: int
    timeout: float
    args: str
    retry: str | None
    meta: str
    tags: list[str] | None
    trace: str | None
    enqueued: float
    claimed: float
    started: bool
    place: int = 0
    suspect: bool = False
    ahead: bool = False
    is_held: bool = False
    tie: Tie | None = None
    key: str | None = None

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued."""
        return datetime.fromtimestamp(self.enqueued, UTC)

    @property
    def claimed_at(self) -> datetime:
        """When this attempt was claimed."""
        return datetime.fromtimestamp(self.claimed, UTC)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One ended or current attempt in a job's timeline."""

    number: int
    outcome: str
    worker_id: int | None
    worker: str | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a listing: without arguments, result and error, which may be large or secret."""

    id: int
    kind: str
    queue: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    tags: list[str]
    unique_key: str | None
    concurrency_key: str | None
    parent_id: int | None
    created_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: int | None
    cancel_requested_at: datetime | None
    progress: float | None
    progress_note: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as people see it: the three rows joined, with the timeline of its attempts.

    The last of *attempts* is the one under way (its outcome is the job's state) or the one that
    ended the job.  An end without *claimed_at* met the job while nobody held it.
    """

    id: int
    kind: str
    queue: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    timeout: float
    args: Any
    meta: Any
    tags: list[str]
    unique_key: str | None
    concurrency_key: str | None
    parent_id: int | None
    created_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: int | None
    cancel_requested_at: datetime | None
    progress: float | None
    progress_note: str | None
    reason: str | None
    error: str | None
    result: Any = None
    attempts: tuple[AttemptRecord, ...] = ()
