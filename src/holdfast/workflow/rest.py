"""When a run falls asleep: once every branch waits, and for longer than is worth staying."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from holdfast.model.outcome import Suspend
from holdfast.model.step import StepNote
from holdfast.workflow.branch import Branch, Wait

# A wait that is over within so many seconds stays in memory: to suspend a run costs more.
SHORT = 1.0
LONGEST_REASON = 500


def idle_waits(branches: Sequence[Branch]) -> list[Wait]:
    """Return what a run waits for from outside; nothing as long as one of its branches is busy."""
    waits = [branch.wait for branch in branches]
    if None in waits:
        return []
    return [wait for wait in waits if wait is not None and not wait.joins]


def _wake_in(waits: Sequence[Wait]) -> float | None:
    """Return in how many seconds the first of these waits is over by itself; None: never."""
    dues = [wait.due for wait in waits if wait.due is not None]
    return max(0.0, min(dues) - time.monotonic()) if dues else None


def asleep(waits: Sequence[Wait], pending: Sequence[StepNote]) -> Suspend | None:
    """Return the decision to sleep, with the places to be recorded; None where staying is cheaper."""
    seconds = _wake_in(waits)
    if any(wait.parks for wait in waits):
        seconds = 0.0
    elif seconds is not None and seconds <= SHORT:
        return None
    return Suspend(
        reason="; ".join(wait.reason for wait in waits)[:LONGEST_REASON],
        signals=tuple(sorted({wait.signal for wait in waits if wait.signal is not None})),
        families=tuple(sorted({wait.family for wait in waits if wait.family is not None})),
        wake_in=seconds,
        notes=(*pending, *(_timed(wait.note, wait.due) for wait in waits if wait.note is not None)),
    )


def _timed(note: StepNote, due: float | None) -> StepNote:
    """Return what is to be recorded of a wait; its time counts from now."""
    return replace(note, wake_in=None if due is None else max(0.0, due - time.monotonic()))
