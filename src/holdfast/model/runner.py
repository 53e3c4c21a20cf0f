"""Runners: workers that have only HTTPS, and what they are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.model.job import JobState
from holdfast.model.worker import WorkerState


class Rung(StrEnum):
    """How far a cancel has come, from the bottom up; the request comes before them all."""

    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    INTERRUPTED = "interrupted"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Runner:
    """A runner as it was heard just now; *capacity* limits what it holds of single queues."""

    id: int
    name: str
    term: int
    state: WorkerState
    labels: frozenset[str]
    kinds: frozenset[str]
    queues: tuple[str, ...]
    slots: int
    capacity: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registration:
    """What came of a registration; *before* is the former one under its name, None where there was none."""

    id: int
    term: int
    state: WorkerState
    before: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Held:
    """An assignment as the server has it.

    *accepted_by* is the number of the request that accepted it, 0 where that was in another term.
    """

    worker_id: int
    job_id: int
    attempt: int
    state: JobState
    accepted: bool
    accepted_by: int
    cancel_requested_at: datetime | None
    cancel_delivered: bool
    cancel_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attempt of a job as it is offered to a runner; *spec*, *meta* and *retry* are JSON text."""

    worker_id: int
    job_id: int
    attempt: int
    failures: int
    kind: str
    queue: str
    priority: int
    max_attempts: int
    retry: str | None
    timeout: float
    meta: str
    tags: list[str]
    trace: str | None
    enqueued_at: datetime
    offered_at: datetime
    spec_sha256: str
    on_loss: str
    spec: str


@dataclass(frozen=True, slots=True)
class Truth:
    """How a job stands, for a runner that believes something else; *outcome* is of the attempt asked for."""

    state: str
    attempt: int
    runner: str | None
    outcome: str | None
