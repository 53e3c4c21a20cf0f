"""A run as people see it: in a list, and as a tree with its steps and children."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import JobState
from holdfast.model.step import StepKind, StepState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Runs that fit everything that is given; what is empty or None asks for nothing.

    *kind* without a version means all its versions; *signal* is one that they wait for; *paused* asks for
    those that an operator or their own code holds back.
    """

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    signal: str | None = None
    paused: bool = False

    @property
    def live_states(self) -> list[JobState]:
        """The states asked for in which a run lives."""
        return [state for state in self.states or JobState if not state.is_final]

    @property
    def final_states(self) -> list[JobState]:
        """The states asked for in which a run has ended; none where only a live one can fit."""
        if self.signal is not None or self.paused:
            return []
        return [state for state in self.states or JobState if state.is_final]


EVERY_RUN = RunFilter()


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a run waits for: any of these, since *since*; *reason* says the same in words.

    *families* are of children.  *paused* holds it back whatever comes: *pause_reason* says who wants that,
    and is None where the run's code does not fit its record.  On a run that goes on it asks for a pause.
    """

    signals: list[str]
    families: list[int]
    wake_at: datetime | None
    paused: bool
    pause_reason: str | None
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a listing: without arguments, result and error, which may be large or secret."""

    id: int
    kind: str
    queue: str
    state: JobState
    attempt: int
    failures: int
    max_attempts: int
    tags: list[str]
    parent_id: int | None
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: int | None
    cancel_requested_at: datetime | None
    reason: str | None
    forked_from: int | None
    suspension: Suspension | None


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One place of a run in its tree: without its result; *error* is one line."""

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
    error: str | None


@dataclass(frozen=True, slots=True)
class UnreadSignal:
    """A signal that its run has not read yet."""

    id: int
    name: str
    key: str | None
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Family:
    """The children that one step has started: *id* is that of the first, as in `StepSummary.child_id`.

    *states* counts all of them; *members* are some in order of id: the completed ones are left out first,
    then those that live.
    """

    id: int
    states: dict[str, int]
    members: tuple[RunNode, ...] = ()

    @property
    def left_out(self) -> int:
        """How many are not among the members."""
        return sum(self.states.values()) - len(self.members)


@dataclass(frozen=True, slots=True)
class RunNode:
    """A run with its steps and children; a child may be a plain job.

    *is_run* is None where no worker has known its kind.  *why* says in a sentence what it waits for.
    *steps* are the newest ones, *steps_left_out* counts the others.
    """

    run: RunSummary
    is_run: bool | None
    why: str | None
    steps: tuple[StepSummary, ...]
    steps_left_out: int
    signals: tuple[UnreadSignal, ...]
    families: tuple[Family, ...]
