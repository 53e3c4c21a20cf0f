"""Sees every statement that a process sends on asyncpg, and kills it at one of them."""

import os
import signal
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import asyncpg

from holdfast.store.sqlfile import blocks, rendered

WATCHED = ("fetch", "fetchval", "execute")
# What a leader does by the clock and to no run: deaths there are the affair of tests/maintenance.
HOUSEKEEPING = ("counts", "partitions", "prune", "schedules")
STANDING = ("lead", "leader_lapse")
# How often these are sent depends on the moment, so that not every life comes to their last ones.
RESTLESS = (
    "cancel_requests",
    "claim_announced",
    "claim_jobs",
    "find_leftovers",
    "queue_limits",
    "running_transactions",
    "stage_jobs",
    "start_jobs",
    "wake_below",
)
# What a leader does again and again: every life comes to the first of these, a slow one to more.
REPEATED = ("declare_lost", "delivery_horizon", "has_runners", "rescue_jobs")


@dataclass(frozen=True)
class Place:
    """One statement in the life of a process: the *nth* one of this name."""

    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.name} {self.nth}"

    @property
    def certain(self) -> bool:
        """Whether every life comes to it, also one that goes faster or slower than others."""
        return self.name not in RESTLESS and (self.nth == 1 or self.name not in REPEATED)


@dataclass(frozen=True)
class Death:
    """SIGKILL just before a statement is sent, or just after PostgreSQL has answered it."""

    place: Place
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.place}"


class Doom:
    """Writes every statement of this process to *trace*, and kills the process where *death* says so."""

    def __init__(self, schema: str, trace: Path, death: str | None) -> None:
        self._names = names(schema)
        self._overlooked = overlooked(self._names)
        self._counts: Counter[str] = Counter()
        self._trace, self._death = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND), death

    def watch(self) -> None:
        """Stand between asyncpg and whoever uses it, for the rest of this process."""
        for method in WATCHED:
            setattr(asyncpg.Connection, method, self._watched(getattr(asyncpg.Connection, method)))

    def _watched(self, method: Any) -> Any:
        async def watched(connection: Any, text: str, *arguments: Any, **options: Any) -> Any:
            place = self._met(text)
            if place is None:
                return await method(connection, text, *arguments, **options)
            self._meet(Death(place, after=False))
            try:
                return await method(connection, text, *arguments, **options)
            finally:
                self._meet(Death(place, after=True))

        return watched

    def _met(self, text: str) -> Place | None:
        if text in self._overlooked:
            return None
        name = self._names.get(text) or text.split()[0].strip(";").lower()
        self._counts[name] += 1
        place = Place(name, self._counts[name])
        os.write(self._trace, f"{place}\n".encode())
        return place

    def _meet(self, death: Death) -> None:
        if str(death) == self._death:
            os.kill(os.getpid(), signal.SIGKILL)


def names(schema: str) -> dict[str, str]:
    """Return the name of every statement of the store by its text."""
    folder = resources.files("holdfast.store").joinpath("sql")
    nouns = [Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".sql")]
    return {rendered(text, schema): name for noun in nouns for name, text in blocks(noun).items()}


def overlooked(names: dict[str, str]) -> frozenset[str]:
    """Return the texts of the statements at which nobody is to die."""
    kept = {name for noun in HOUSEKEEPING for name in blocks(noun)} | {*STANDING}
    return frozenset(text for text, name in names.items() if name in kept)


def traced(trace: Path) -> list[Place]:
    """Read which statements a process has come to."""
    pairs = (line.rsplit(" ", 1) for line in trace.read_text().splitlines())
    return [Place(name, int(nth)) for name, nth in pairs]
