"""When a run falls asleep: once every branch waits, and for longer than is worth staying."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from holdfast.errors import InputInvalid
from holdfast.model.outcome import Suspend
from holdfast.model.step import StepNote
from holdfast.workflow.branch import Branch, Wait

# A wait that is over within so many seconds stays in memory: to suspend a run costs more.
SHORT = 1.0
LONGEST_REASON = 500


def busy(branches: dict[str, Branch]) -> Iterator[Branch]:
    """Find the branches that do not wait, the youngest first.

    Asked whenever one of thousands comes to rest.  They do so in the order in which they were begun, so from
    that side one that is busy is soon found.
    """
    return (branch for branch in reversed(branches.values()) if branch.is_busy)


def idle_waits(branches: dict[str, Branch]) -> list[Wait]:
    """Return what a run waits for from outside; nothing as long as one of its branches is busy."""
    if any(busy(branches)):
        return []
    return [branch.wait for branch in branches.values() if branch.wait is not None and not branch.wait.joins]


def circle(branches: dict[str, Branch]) -> InputInvalid:
    """Return the error of a run whose branches all wait for branches: none of those ends ever."""
    waits = [f"{branch.name!r} for {branch.wait.reason}" for branch in branches.values() if branch.wait]
    told = ", ".join(waits)[:LONGEST_REASON]
    msg = f"the branches of the run wait for each other ({told}): await only branches that end by themselves"
    return InputInvalid(msg)


def lasts(waits: Sequence[Wait], seconds: float) -> bool:
    """Tell whether a run that waits for these may sleep: none is over by itself within *seconds*."""
    due = _first_due(waits)
    return due is None or due - time.monotonic() > seconds or any(wait.parks for wait in waits)


def asleep(waits: Sequence[Wait], pending: Sequence[StepNote]) -> Suspend | None:
    """Return the decision to sleep, with the places to be recorded; None where staying is cheaper."""
    if not lasts(waits, SHORT):
        return None
    return Suspend(
        reason="; ".join(wait.reason for wait in waits)[:LONGEST_REASON],
        signals=tuple(sorted({wait.signal for wait in waits if wait.signal is not None})),
        families=tuple(sorted({wait.family for wait in waits if wait.family is not None})),
        due=time.monotonic() if any(wait.parks for wait in waits) else _first_due(waits),
        notes=(*pending, *(replace(wait.note, due=wait.due) for wait in waits if wait.note is not None)),
    )


def _first_due(waits: Sequence[Wait]) -> float | None:
    """Return when the first of these waits is over by itself; None: never."""
    return min((wait.due for wait in waits if wait.due is not None), default=None)
