"""What runners had to do with a job, as people see it: its placement, its assignments, its artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.model.placement import OnLoss

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """What a job asks of runners; *stall_limit* in seconds.

    *pinned_until* is set while only *runner* may take it and others may later.
    """

    labels: list[str]
    runner: str | None
    pinned_until: datetime | None
    on_loss: OnLoss
    stall_limit: float | None
    spec_sha256: str


@dataclass(frozen=True, slots=True)
class LateReport:
    """The end that a runner reported when it was too late, or when it had reported another one."""

    at: datetime
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AssignmentRecord:
    """One attempt of a job as its runner had it.

    *rungs* are the moments of its cancel by name, ``requested`` first; *report* is the end as it was
    accepted, *evidence* what came too late or contradicted it.
    """

    attempt: int
    worker_id: int
    runner: str | None
    term: int
    offered_at: datetime
    accepted_at: datetime | None
    started_at: datetime | None
    progressed_at: datetime
    ended_at: datetime | None
    outcome: str | None
    rungs: dict[str, datetime]
    cancel_reason: str | None
    report: dict[str, Any] | None
    evidence: list[LateReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactLimits:
    """How much one attempt may leave: so many files, so many bytes in one of them and in all together."""

    count: int = 100
    file_bytes: int = 50 * MEBIBYTE
    total_bytes: int = 256 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A file that an attempt left; *size* in bytes, *sha256* in hex."""

    attempt: int
    name: str
    size: int
    sha256: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RunnerStory:
    """Everything that runners had to do with a job."""

    placement: PlacementRecord
    assignments: list[AssignmentRecord]
    artifacts: list[ArtifactRecord]
