"""Jobs as they travel over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from holdfast.client.intake import JobText
from holdfast.client.wire.shape import LARGEST_ID, Why
from holdfast.model.assignment import RunnerStory
from holdfast.model.audit import AuditRecord
from holdfast.model.job import JobRecord, JobState, JobSummary
from holdfast.rules.intervention import Intervention

MOST_AT_ONCE = 5000


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, newest first; *next* is *before* of the next page, null on the last one."""

    jobs: list[JobSummary]
    next: int | None


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs fit."""

    count: int


class JobStory(msgspec.Struct, frozen=True):
    """Everything about a job: *why* says what it waits for, *audit* what operators did to it.

    *runners* is what runners had to do with it, null for a job that is not for them.
    """

    job: JobRecord
    why: str | None
    audit: list[AuditRecord]
    runners: RunnerStory | None = None


class JobAnswer(msgspec.Struct, frozen=True):
    """How a job stands; *result* is set once it is completed."""

    id: int
    state: JobState
    ended: bool
    result: Any
    error: str | None
    reason: str | None


class JobBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to enqueue, all or none."""

    jobs: Annotated[list[JobText], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]


WithZone = Annotated[datetime, msgspec.Meta(tz=True)]


class Cancelled(msgspec.Struct, frozen=True):
    """What a cancel came to: *ended*, or its worker was asked to stop it."""

    ended: bool


class Done(msgspec.Struct, frozen=True):
    """The job was acted on."""

    id: int


class JobChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs are meant: those that fit everything that is given."""

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    tags: tuple[str, ...] = ()
    since: WithZone | None = None
    until: WithZone | None = None
    ended_since: WithZone | None = None
    ended_until: WithZone | None = None
    worker_id: int | None = None
    text: str | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None


class SweepOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One stroke of a sweep: what is done to the 500 newest jobs with ids below *before* that fit *chosen*.

    *every* has to say that all jobs are meant, where *chosen* asks for nothing.
    """

    action: Intervention
    chosen: JobChoice = JobChoice()
    every: bool = False
    reason: Why = None
    before: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)] | None = None


class SweepStroke(msgspec.Struct, frozen=True):
    """What one stroke came to; *before* is for the next one, null after the last.

    Jobs whose state had changed meanwhile are *passed_over*.
    """

    changed: int
    passed_over: int
    before: int | None


class Line(msgspec.Struct, frozen=True):
    """One line; *byte_offset* is its place in the log of its attempt."""

    attempt: int
    byte_offset: int
    at: datetime
    level: str
    line: str


class Lines(msgspec.Struct, frozen=True):
    """Lines in order; *ended* says that the job writes no more, *next* is *after* of the next page."""

    lines: list[Line]
    ended: bool
    next: str
