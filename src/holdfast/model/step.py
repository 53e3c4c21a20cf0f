"""What a run remembers: its steps and waits, place by place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

MAIN = "main"
COMPENSATION = "compensation"
# Where stands how a run is to end that makes up for its steps without having been cancelled.
END_PLACE = -1
# Where stands, in the main branch, what its drawn numbers come from.
SEED_PLACE = -1
# Where stand the living children of a run from before it began anew.
FORMER_PLACE = -2


class StepKind(StrEnum):
    """What stands at a place of a branch."""

    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    CHILDREN = "children"
    ENQUEUE = "enqueue"
    NOW = "now"
    PATCH = "patch"
    CANCEL = "cancel"
    SEED = "seed"
    END = "end"


class StepState(StrEnum):
    """How far a step is.  The last two are for ever."""

    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True for a step that is not run again."""
        return self in (StepState.COMPLETED, StepState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    """One place as it is to be written.

    *result*, *error*, *detail*, *shown* and *parameters* are JSON text; *parameters* and *shown* (the result
    or the error) are for the log of calls, which gets a line where *parameters* is given.  *seconds* is how
    long ago it began, *due* when it goes on, by the monotonic clock: a late write does not make it late.
    """

    branch: str
    place: int
    name: str
    kind: StepKind
    state: StepState
    tries: int = 0
    seconds: float | None = None
    due: float | None = None
    result: str | None = None
    error: str | None = None
    detail: str | None = None
    shown: str | None = None
    parameters: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One place as a run remembers it; *result*, *error* and *detail* are JSON text.

    *waits* says that children live that it waits for.
    """

    branch: str
    place: int
    name: str
    kind: StepKind
    state: StepState
    tries: int
    wake_at: datetime | None
    child_id: int | None
    result: str | None
    error: str | None
    detail: str | None
    waits: bool


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The progress of one step, as people see it."""

    branch: str
    place: int
    name: str
    kind: StepKind
    state: StepState
    attempt: int
    tries: int
    started_at: datetime | None
    finished_at: datetime | None
    wake_at: datetime | None
    child_id: int | None
    result: Any
    error: Any
    detail: Any


@dataclass(frozen=True, slots=True)
class ActivityRecord:
    """One line of the log of step calls."""

    id: int
    attempt: int
    branch: str
    place: int
    step: str
    tried: int
    parameters: Any
    result: Any
    error: Any
    started_at: datetime
    seconds: float
