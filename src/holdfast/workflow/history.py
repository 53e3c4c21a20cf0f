"""What a run remembers, while it is replayed."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.step import COMPENSATION, FORMER_PLACE, RecordedStep, StepKind, StepNote, StepState
from holdfast.store.steps import Memory


@dataclass(slots=True)
class Entry:
    """One recorded place; *due* is when it goes on, by the monotonic clock.

    *waits* says that children lived, when it was loaded, that it waits for.
    """

    name: str
    kind: StepKind
    state: StepState
    tries: int = 0
    due: float | None = None
    child_id: int | None = None
    result: str | None = None
    error: str | None = None
    detail: str | None = None
    visited: bool = False
    waits: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


class History:
    """Recorded places by branch and number, and the seed of the run's random values.

    *end* is how the run is to end once it has made up for its steps, as JSON text.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.end: str | None = None
        self.cancelled = self.paused = False
        self._branches: dict[str, dict[int, Entry]] = {}
        # The last place of each branch, and the names of those right below it: asked for at every patch.
        self._last: dict[str, int] = {}
        self._below: dict[str, set[str]] = {}

    def fill(self, memory: Memory) -> None:
        """Take over what was loaded."""
        self.cancelled, self.paused = memory.cancelled, memory.paused
        loaded = time.monotonic()
        for step in memory.steps:
            if step.kind is StepKind.SEED:
                self.seed = msgspec.json.decode(step.result or '""')
                continue
            if step.place == FORMER_PLACE:
                continue
            if step.kind is StepKind.END:
                self.end = step.result
                continue
            due = None if step.wake_at is None else loaded + (step.wake_at - memory.now).total_seconds()
            self.put(step.branch, step.place, _entry(step, due, child_id=step.child_id, waits=step.waits))

    def note(self, note: StepNote) -> None:
        """Remember what is being written, for a replay in the same attempt."""
        entry = _entry(note, note.due, visited=True)
        self.put(note.branch, note.place, entry)

    def put(self, branch: str, place: int, entry: Entry) -> None:
        """Remember what is recorded at a place."""
        if branch not in self._branches:
            self._branches[branch] = {}
            self._hang(branch)
        self._branches[branch][place] = entry
        self._last[branch] = max(place, self._last.get(branch, place))

    def at(self, branch: str, place: int) -> Entry | None:
        """Return what is recorded at a place."""
        found = self._branches.get(branch)
        return None if found is None else found.get(place)

    def goes_on(self, branch: str, place: int) -> bool:
        """True where something is recorded at this place of a branch or behind it."""
        return self._last.get(branch, place - 1) >= place

    def below(self, branch: str) -> Collection[str]:
        """Return the names of recorded branches right below this one, as they are called there."""
        return self._below.get(branch, ())

    def unvisited(self) -> tuple[str, int, Entry] | None:
        """Return the first place that the code has not come by, other than markers and compensations."""
        for branch, entries in self._branches.items():
            if branch == COMPENSATION:
                continue
            for place, entry in sorted(entries.items()):
                if not entry.visited and entry.kind not in (StepKind.PATCH, StepKind.CANCEL):
                    return branch, place, entry
        return None

    def forget_visits(self) -> None:
        """Begin another replay."""
        for entries in self._branches.values():
            for entry in entries.values():
                entry.visited = False

    def _hang(self, branch: str) -> None:
        """Note a branch below its parent, which may have nothing recorded of its own, and so on upwards."""
        while branch:
            branch, _, name = branch.rpartition("/")
            siblings = self._below.setdefault(branch, set())
            if name in siblings:
                return
            siblings.add(name)


def _entry(step: StepNote | RecordedStep, due: float | None, **facts: Any) -> Entry:
    return Entry(
        step.name,
        step.kind,
        step.state,
        step.tries,
        due,
        result=step.result,
        error=step.error,
        detail=step.detail,
        **facts,
    )
