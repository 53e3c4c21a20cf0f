"""Who is measured: each peer, where its adapter and environment are, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Language(StrEnum):
    """What a peer's workers are written in."""

    PYTHON = "Python"
    NODE = "Node.js"
    SQL = "SQL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One row of the tables.

    *name* is also the adapter's module; *environment* is its folder of requirements, None where Holdfast's
    own environment serves.  *share* is the part of the jobs that it is given, so that a slow one does not
    take all day. *kinds* are the handlers it has; what it lacks or cannot be measured by public means is
    named by *has_…*; *needs_python* is the least version it runs on.  *note* stands beside its figures.
    """

    name: str
    label: str
    language: Language = Language.PYTHON
    environment: str | None = None
    share: float = 1.0
    kinds: frozenset[str] = frozenset({"noop", "ms", "sync"})
    has_history: bool = True
    has_queues: bool = True
    has_priorities: bool = True
    needs_python: tuple[int, int] = (3, 11)
    note: str = ""


ASYNC_ONLY = frozenset({"noop", "ms"})

HOLDFAST = Contestant(name="holdfast", label="Holdfast")
FLOOR = Contestant(name="floor", label="floor: bare SQL by pgbench", language=Language.SQL)

PEERS = (
    Contestant(name="procrastinate", label="procrastinate 3.10", environment="procrastinate", share=0.02),
    Contestant(name="pgqueuer", label="PgQueuer 1.6", environment="pgqueuer", share=0.5),
    Contestant(
        name="chancy",
        label="chancy 0.26",
        environment="chancy",
        share=0.1,
        kinds=ASYNC_ONLY,
        note="its executor for coroutines; sync handlers need another executor",
    ),
    Contestant(
        name="dbos",
        label="DBOS 3.4",
        environment="dbos",
        share=0.02,
        note="no bulk enqueue: 1,000 calls in a transaction",
    ),
    Contestant(
        name="absurd",
        label="absurd 0.5",
        environment="absurd",
        share=0.03,
        kinds=ASYNC_ONLY,
        note="no bulk enqueue: 1,000 calls in a transaction",
    ),
    Contestant(
        name="awa",
        label="Awa 0.6",
        environment="awa",
        share=0.2,
        kinds=ASYNC_ONLY,
        has_history=False,
        has_queues=False,
    ),
    Contestant(
        name="oban",
        label="Oban for Python 0.7",
        environment="oban",
        share=0.1,
        kinds=ASYNC_ONLY,
        needs_python=(3, 12),
    ),
    Contestant(
        name="graphile_worker",
        label="graphile-worker 0.18",
        language=Language.NODE,
        environment="graphile_worker",
        kinds=ASYNC_ONLY,
        note="keeps no history: a finished job is deleted",
        has_history=False,
    ),
    Contestant(
        name="pg_boss",
        label="pg-boss 12.35",
        language=Language.NODE,
        environment="pg_boss",
        kinds=ASYNC_ONLY,
        note="one handler call for a whole batch",
    ),
)


def contestant(name: str) -> Contestant:
    """Return the one of that name; raises KeyError."""
    return {one.name: one for one in (HOLDFAST, *PEERS, FLOOR)}[name]
