"""Statements about what becomes of assignments: life, ends, and what comes too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.model.job import JobState
from holdfast.model.runner import Held, Rung, Truth
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, is_any
from holdfast.store.workers import Rescued, rescued

_SQL = blocks("assignments")


def held_assignments(worker_ids: Sequence[int]) -> Statement[list[Held]]:
    """Find everything that these runners hold."""
    return Statement("held_assignments", _SQL["held_assignments"], (list(worker_ids),), _held)


def _held(rows: Sequence[Row]) -> list[Held]:
    return sorted((_one_held(list(row)) for row in rows), key=lambda held: held.job_id)


def _one_held(values: list[Any]) -> Held:
    values[3] = JobState(values[3])
    return Held(*values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a runner says of an assignment that it holds; None says nothing new."""

    fence: Fence
    worker_id: int
    term: int
    number: int
    running: bool = False
    progress: float | None = None
    note: str | None = None
    alive: bool = False
    rung: Rung | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How an assignment stands after its runner has spoken."""

    job_id: int
    attempt: int
    state: JobState
    cancel_requested_at: datetime | None
    cancel_delivered: bool
    cancel_reason: str | None


def note_life(lives: Sequence[Life]) -> Statement[dict[Fence, Standing]]:
    """Write what runners say; an assignment that is missing is not the runner's any more."""
    parameters = (
        [life.fence.job_id for life in lives],
        [life.fence.attempt for life in lives],
        [life.worker_id for life in lives],
        [life.term for life in lives],
        [life.number for life in lives],
        [life.running for life in lives],
        [life.progress for life in lives],
        [life.note for life in lives],
        [life.alive for life in lives],
        [life.rung and life.rung.value for life in lives],
    )
    return Statement("note_life", _SQL["note_life"], parameters, _standings)


def _standings(rows: Sequence[Row]) -> dict[Fence, Standing]:
    return {Fence(row[0], row[1]): Standing(row[0], row[1], JobState(row[2]), *row[3:]) for row in rows}


def note_delivered(fences: Sequence[Fence]) -> Statement[bool]:
    """Remember that answers with a cancel went out."""
    parameters = ([fence.job_id for fence in fences], [fence.attempt for fence in fences])
    return Statement("note_delivered", _SQL["note_delivered"], parameters, is_any)


def take_missing(fences: Sequence[Fence], worker_ids: Sequence[int]) -> Statement[list[Rescued]]:
    """Take assignments away that runners had accepted and hold no more."""
    parameters = (
        [fence.job_id for fence in fences],
        [fence.attempt for fence in fences],
        list(worker_ids),
    )
    return Statement("take_missing", _SQL["take_missing"], parameters, rescued)


def take_stalled(term: int, limit: int) -> Statement[list[Rescued]]:
    """Take jobs away that have shown no life for their stall limit."""
    return Statement("take_stalled", _SQL["take_stalled"], (term, limit), rescued)


@dataclass(frozen=True, slots=True)
class EndFacts:
    """What decides how a reported assignment ends.

    *report* is JSON text, there once one was accepted; *frees* the queue that has room under a limit then.
    """

    held: bool
    failures: int
    max_attempts: int
    retry: str | None
    cancel_requested: bool
    seconds: float
    kind: str | None
    report: str | None
    outcome: str | None
    worker_id: int
    frees: str | None


def end_facts(asked: Sequence[tuple[Fence, int]]) -> Statement[dict[Fence, EndFacts]]:
    """Lock what is held of these, each with a runner; one that is missing was never its runner's."""
    parameters = (
        [fence.job_id for fence, _ in asked],
        [fence.attempt for fence, _ in asked],
        [worker_id for _, worker_id in asked],
    )
    return Statement("end_facts", _SQL["end_facts"], parameters, _end_facts)


def _end_facts(rows: Sequence[Row]) -> dict[Fence, EndFacts]:
    return {Fence(row[0], row[1]): EndFacts(*row[2:]) for row in rows}


@dataclass(frozen=True, slots=True)
class Noted:
    """How an assignment ended: the *report* (JSON text), what came of it, and how far its cancel had come."""

    fence: Fence
    report: str
    outcome: str
    rung: Rung | None


def note_ends(ends: Sequence[Noted]) -> Statement[bool]:
    """Remember how assignments ended."""
    parameters = (
        [end.fence.job_id for end in ends],
        [end.fence.attempt for end in ends],
        [end.report for end in ends],
        [end.outcome for end in ends],
        [end.rung and end.rung.value for end in ends],
    )
    return Statement("note_ends", _SQL["note_ends"], parameters, is_any)


def keep_evidence(fence: Fence, worker_id: int, report: str) -> Statement[bool]:
    """Keep a report (JSON text) that was refused; False: the assignment was never the runner's."""
    parameters = (fence.job_id, fence.attempt, worker_id, report)
    return Statement("keep_evidence", _SQL["keep_evidence"], parameters, is_any)


def find_truth(fence: Fence) -> Statement[Truth | None]:
    """Look how a job stands, and what became of one attempt; None: there is no such job."""
    return Statement("find_truth", _SQL["find_truth"], (fence.job_id, fence.attempt), _truth)


def _truth(rows: Sequence[Row]) -> Truth | None:
    return Truth(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class Spec:
    """What a runner gets of a job, and the hash that it had when the job was enqueued."""

    text: str
    sha256: str


def read_spec(fence: Fence, worker_id: int) -> Statement[Spec | None]:
    """Read the spec of a held assignment; None: the lease was lost."""
    return Statement("read_spec", _SQL["read_spec"], (fence.job_id, fence.attempt, worker_id), _spec)


def _spec(rows: Sequence[Row]) -> Spec | None:
    return Spec(*rows[0]) if rows else None
