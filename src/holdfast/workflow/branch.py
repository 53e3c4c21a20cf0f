"""A branch of a run: a line of steps, each with its place."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.workflow.history import Entry


class Unwinding(BaseException):
    """Ends the code of a run that sleeps or is stopped; it is no error and is not recorded."""


@dataclass(slots=True)
class Wait:
    """Why a branch does nothing for now.

    *due* is when it goes on by itself, *look* when it looks again as long as the run is in memory, both
    by the monotonic clock.  *joins*: it waits for branches of its own run.  *parks*: it goes on only
    after the run has been suspended and woken.
    """

    reason: str
    due: float | None = None
    look: float | None = None
    signal: str | None = None
    family: int | None = None
    note: StepNote | None = None
    joins: bool = False
    parks: bool = False


class Branch:
    """One branch while it is in memory.

    *cancelled* says that a sibling has failed: the next step is told so, once; *told* says that it was.
    *cut* says that the code was told of a timeout around it.  *in_step* is true while a function
    of the user runs, which can be cancelled.
    """

    __slots__ = (
        "blocks",
        "busy",
        "cancelled",
        "cut",
        "draws",
        "future",
        "in_step",
        "name",
        "names",
        "parent",
        "place",
        "task",
        "told",
        "wait",
    )

    def __init__(self, name: str, parent: Branch | None = None) -> None:
        self.name, self.parent = name, parent
        self.place = self.draws = self.blocks = 0
        self.names: dict[str, int] = {}
        self.busy = self.cancelled = self.cut = self.in_step = self.told = False
        self.wait: Wait | None = None
        self.future: asyncio.Future[None] | None = None
        self.task: asyncio.Task[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """True unless it waits for something that neither has come nor was cut short."""
        return self.wait is None or (self.future is not None and self.future.done())

    def hear(self) -> None:
        """Take note that the code is being told of a sibling's failure, which it is only once."""
        if self.cancelled and self.task is not None:
            self.task.uncancel()
        self.cancelled, self.told = False, True

    def child_name(self, name: str) -> str:
        """Return the full name of a new branch below this one; the same name again gets a number."""
        self.names[name] = count = self.names.get(name, 0) + 1
        return f"{self.name}/{name}" if count == 1 else f"{self.name}/{name}#{count}"

    def has_begun(self, child: str) -> bool:
        """Tell whether this replay has begun a branch below this one, called *child* there."""
        name, _, number = child.partition("#")
        return self.names.get(name, 0) >= int(number or 1)


@dataclass(slots=True)
class Spot:
    """The place of a branch at which something is asked for, with what is recorded there."""

    branch: Branch
    place: int
    kind: StepKind
    name: str
    entry: Entry | None

    @property
    def is_final(self) -> bool:
        """True where the answer is recorded."""
        return self.entry is not None and self.entry.state.is_final

    @property
    def told(self) -> str:
        """What is asked for, as people are told of it."""
        return self.name if self.kind is StepKind.CANCEL else f"{self.kind} {self.name!r}"

    def note(self, state: StepState, **facts: Any) -> StepNote:
        """Return what is to be written at this place."""
        return StepNote(
            branch=self.branch.name, place=self.place, name=self.name, kind=self.kind, state=state, **facts
        )

    def stopped(self, *, error: str | None = None) -> StepNote:
        """Return what is to be written where the code is stopped here; without an error, for a sibling."""
        return replace(self.note(StepState.FAILED, error=error), kind=StepKind.CANCEL)


current_branch: ContextVar[Branch] = ContextVar("holdfast_branch")
