"""Statements about what runs remember: load, save, and the log of step calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.model.step import ActivityRecord, RecordedStep, StepKind, StepNote, StepRecord, StepState
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, numbers

_SQL = blocks("steps")


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that a run remembers, as of *now*; *cancelled* and *paused* say what was requested."""

    now: datetime
    cancelled: bool
    paused: bool
    steps: list[RecordedStep]


def load_steps(run_ids: Sequence[int]) -> Statement[list[Memory | None]]:
    """Load what each run remembers; None where it has ended."""
    return Statement("load_steps", _SQL["load_steps"], (numbers(run_ids),), partial(_memories, run_ids))


def _memories(run_ids: Sequence[int], rows: Sequence[Row]) -> list[Memory | None]:
    memories: dict[int, Memory] = {}
    for run_id, now, cancelled, paused, *step in rows:
        memory = memories.setdefault(run_id, Memory(now, cancelled, paused, []))
        if step[0] is not None:
            memory.steps.append(_recorded(step))
    return [memories.get(run_id) for run_id in run_ids]


def _recorded(row: Row) -> RecordedStep:
    branch, place, name, kind, state, *rest = row
    return RecordedStep(branch, place, name, StepKind(kind), StepState(state), *rest)


def save_steps(notes: Sequence[tuple[Fence, StepNote]]) -> Statement[dict[int, bool]]:
    """Write places of held runs; answers each run whose lease held, and whether it is to be paused."""
    notes = sorted(notes, key=lambda one: one[0].job_id)
    parameters = (
        numbers([fence.job_id for fence, _ in notes]),
        numbers([fence.attempt for fence, _ in notes]),
        [note.branch for _, note in notes],
        numbers([note.place for _, note in notes]),
        [note.name for _, note in notes],
        [note.kind.value for _, note in notes],
        [str(note.state) for _, note in notes],
        numbers([note.tries for _, note in notes]),
        numbers([note.seconds for _, note in notes]),
        numbers([seconds_until(note.due) for _, note in notes]),
        [note.result for _, note in notes],
        [note.error for _, note in notes],
        [note.detail for _, note in notes],
        [note.shown for _, note in notes],
        [note.parameters for _, note in notes],
    )
    return Statement("save_steps", _SQL["save_steps"], parameters, _saved)


def seconds_until(due: float | None) -> float | None:
    """Return how far a time of the monotonic clock is off, in seconds, less than 0 where it is past.

    Reckoned anew whenever a statement is made: one that is sent late, or once more, names the same moment.
    """
    return None if due is None else due - time.monotonic()


def _saved(rows: Sequence[Row]) -> dict[int, bool]:
    return {row[0]: row[1] for row in rows}


def list_steps(
    run_id: int, after: tuple[str, int] | None = None, limit: int = 1000
) -> Statement[list[StepRecord]]:
    """Show the progress of a run's steps behind a branch and place, in the order in which they began."""
    branch, place = after or (None, None)
    return Statement("list_steps", _SQL["list_steps"], (run_id, branch, place, limit), _records)


def _records(rows: Sequence[Row]) -> list[StepRecord]:
    return [_record(*row) for row in rows]


def _record(branch: str, place: int, name: str, kind: str, state: str, *rest: Any) -> StepRecord:
    plain, texts = rest[:-3], rest[-3:]
    return StepRecord(branch, place, name, StepKind(kind), StepState(state), *plain, *map(_decoded, texts))


def list_activities(run_id: int, after: int, limit: int) -> Statement[list[ActivityRecord]]:
    """Show up to *limit* lines of a run's log of step calls after line *after*."""
    return Statement("list_activities", _SQL["list_activities"], (run_id, after, limit), _activities)


def _activities(rows: Sequence[Row]) -> list[ActivityRecord]:
    return [ActivityRecord(*row[:6], *map(_decoded, row[6:9]), *row[9:]) for row in rows]


def _decoded(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        # Plain SQL may send what Python cannot read: it is shown as it stands.
        return text
