"""What is measured, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from bench.catalogue import Contestant


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A row of figures: a scenario's letter, a name, a unit, and which direction is better.

    *fresh* names the case of the same scenario that this one is divided by.
    """

    scenario: str
    name: str
    unit: str = "jobs/s"
    less_is_better: bool = False
    fresh: str | None = None


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one round; *yardstick_ms* is the fixed loop before and after it."""

    case: Case
    contestant: str
    round: int
    value: float
    yardstick_ms: tuple[float, float]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that came to nothing, and why."""

    cell: str
    contestant: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large everything is.

    *jobs* of a drain, *singles* enqueued one by one, *probes* of a latency, *mass* of history and backlog,
    *pinned* seconds under an old snapshot, *idle* seconds of watching a worker that has nothing to do,
    durable *runs*, and *timers* that are due at the same moment.
    """

    jobs: int = 100_000
    singles: int = 8_000
    probes: int = 490
    mass: int = 1_000_000
    pinned: float = 300.0
    idle: float = 10.0
    runs: int = 10_000
    timers: int = 100_000

    def share(self, peer: Contestant) -> int:
        """Return how many jobs a drain has for *peer*, a multiple of a thousand."""
        return max(1000, int(self.jobs * peer.share) // 1000 * 1000)


Figures = Mapping[Case, float]
Measure = Callable[[Contestant, Scale], Awaitable[Figures]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way to measure, and who takes part in it; every measurement begins with a fresh cluster."""

    scenario: str
    name: str
    measure: Measure
    contestants: tuple[Contestant, ...]
    is_quick: bool = field(default=False)
