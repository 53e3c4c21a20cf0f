"""What became of attempts and is not written yet, by the statement that writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.store import attempts, runs
from holdfast.store.attempts import Ended, Returned
from holdfast.store.runs import Suspended
from holdfast.store.statement import Statement

LARGEST_BATCH = 1000

One = TypeVar("One", Ended, Returned, Suspended)


@dataclass(frozen=True, slots=True)
class Pile(Generic[One]):
    """What waits to be written by one kind of statement, in the order in which it was reported."""

    make: Callable[[Sequence[One]], Statement[list[int]]]
    waiting: list[One] = field(default_factory=list)

    def take(self) -> list[One]:
        """Take a batch off."""
        batch = self.waiting[:LARGEST_BATCH]
        del self.waiting[:LARGEST_BATCH]
        return batch


class Backlog:
    """A pile for each kind of statement."""

    def __init__(self) -> None:
        self.ended = Pile(attempts.finish_jobs)
        self.returned, self.suspended = Pile(attempts.put_back_jobs), Pile(runs.suspend_runs)

    def __len__(self) -> int:
        return len(self.ended.waiting) + len(self.returned.waiting) + len(self.suspended.waiting)

    def take(self) -> list[tuple[Pile[Any], list[Any]]]:
        """Take a batch off each; ends first, and alone where they are many: others may come after them."""
        batches: list[tuple[Pile[Any], list[Any]]] = [(self.ended, self.ended.take())]
        if not self.ended.waiting:
            batches += [(self.returned, self.returned.take()), (self.suspended, self.suspended.take())]
        return batches
