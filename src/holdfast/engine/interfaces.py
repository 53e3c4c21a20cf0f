"""The interfaces on which a workflow engine can stand.

They are written for an engine that is not Holdfast's own.  `EngineStore` implements them on PostgreSQL;
`holdfast.testing.EngineConformance` tests any implementation.

Whatever writes for a claim is fenced: once another attempt may own the run, it changes nothing and raises
`LeaseLost`, or, where an engine must not be held up, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Unpack

from holdfast.app.keywords import EnqueueOptions
from holdfast.engine.claims import Claim
from holdfast.engine.outcomes import Outcome
from holdfast.model.job import JobHandle
from holdfast.model.step import MAIN, ActivityRecord, StepRecord, StepState
from holdfast.model.worker import Renewal
from holdfast.store.workers import Rescued


class RunQueue(Protocol):
    """Where runs wait for an engine, and the lease under which it holds them."""

    async def enqueue(
        self, kind: str, spec: Mapping[str, Any], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Put a run in; on a caller's *connection* it is there once the caller's transaction commits.

        Raises `InputInvalid` for what cannot be kept, and `DuplicateJob` where a unique key is to be refused.
        """

    async def claim(self, limit: int = 1) -> Sequence[Claim]:
        """Take up to *limit* runs of this engine's kinds, the best first; none where nothing is available.

        No run is given to two at once, and every claim is a new attempt.
        """

    async def renew(self, claim: Claim) -> Renewal:
        """Prolong the lease of whoever holds the claim, and hear what is wanted of it; raises `LeaseLost`.

        Renew once at the beginning, for a cancel may be waiting already, and then well within the lease.
        """

    async def end(self, claim: Claim, outcome: Outcome) -> None:
        """End an attempt, with any outcome; raises `LeaseLost`, and then nothing was changed."""

    async def rescue(self) -> Sequence[Rescued]:
        """Take runs from engines whose lease has run out.

        Each goes back (``lost``), or ends as ``failed`` at its limit of attempts, or as ``cancelled`` where
        that was asked for.
        """

    async def stage(self) -> int:
        """Make runs available whose time has come; answers how many."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A checkpoint as it is found, the version of its shape, and the attempt that has saved it."""

    state: Any
    version: int
    attempt: int
    saved_at: datetime


class Checkpointer(Protocol):
    """The state from which a run goes on: one for each run, the last one saved."""

    async def save(self, claim: Claim, state: Any) -> None:
        """Replace the state of a held run (JSON data); raises `LeaseLost`, `PayloadTooLarge`."""

    async def load(self, run_id: int) -> SavedState | None:
        """Return what was saved, whoever asks; None where nothing was, which is not an empty state.

        Raises `StateConflict` for a state that a newer version of the engine has saved.
        """

    async def delete(self, claim: Claim) -> bool:
        """Forget the state of a held run; False where there was none.  Raises `LeaseLost`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How far a step is.  Its row is that of *place*, its number within its *branch*.

    It began *seconds* ago, and *tries* counts its tries in this run.  *detail* is for whoever watches.
    """

    step: str
    place: int
    state: StepState
    branch: str = MAIN
    tries: int = 1
    seconds: float = 0.0
    error: BaseException | None = None
    detail: Any = None


class Progress(Protocol):
    """How far the steps of runs are, for those who watch.

    One row for each run, branch and place, which only goes forward: a late ``running`` does not replace
    ``completed``, nor an old attempt a newer one.
    """

    def report(self, claim: Claim, report: StepReport) -> None:
        """Take a report.  It neither waits nor raises, whatever the state of the database."""

    async def settle(self) -> None:
        """Wait until what was reported is written, or given up."""

    async def read(
        self, run_id: int, *, after: tuple[str, int] | None = None, limit: int = 1000
    ) -> Sequence[StepRecord]:
        """Return steps of a run behind a branch and place, in the order in which they began.

        For a run that is unknown there are none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One call of a step, as it went: it took *seconds* and has ended just now.

    Its attempt, *branch*, *place* and *tried* tell it from other calls.
    """

    step: str
    place: int
    branch: str = MAIN
    tried: int = 1
    parameters: Any = None
    result: Any = None
    error: BaseException | None = None
    seconds: float = 0.0


class ActivityLog(Protocol):
    """Every call of a step, append-only; each line has an id of its own, which the log gives it."""

    def append(self, claim: Claim, activity: Activity) -> None:
        """Take a line.  It neither waits nor raises, whatever the state of the database."""

    async def settle(self) -> None:
        """Wait until what was appended is written, or given up."""

    async def read(self, run_id: int, *, after: int = 0, limit: int = 1000) -> Sequence[ActivityRecord]:
        """Return lines of a run behind the one with id *after*, in the order in which they were written."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that a run has taken."""

    payload: Any


class Signals(Protocol):
    """Messages to runs: first in, first out for each run and name, taken once."""

    async def send(self, run_id: int, name: str, payload: Any = None, *, key: str | None = None) -> int:
        """Send a signal, which wakes a run suspended for it; a second one with the same *key* is the first.

        Answers its id; raises `RunEnded`.
        """

    async def take(self, claim: Claim, name: str, *, place: int, branch: str = MAIN) -> Signal | None:
        """Give the oldest signal to a place of a held run; asked again for that place, it is the same one.

        None where none has come.  Raises `LeaseLost`.
        """


class Engine(Protocol):
    """All that a workflow engine stands on, as one worker has it."""

    @property
    def queue(self) -> RunQueue:
        """Where runs wait."""

    @property
    def checkpoints(self) -> Checkpointer:
        """From where they go on."""

    @property
    def progress(self) -> Progress:
        """How far they are."""

    @property
    def activities(self) -> ActivityLog:
        """What was called."""

    @property
    def signals(self) -> Signals:
        """What they are told."""
