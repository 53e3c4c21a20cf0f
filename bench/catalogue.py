"""Who is measured: each peer, where its adapter and environment are, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Language(StrEnum):
    """What a peer's workers are written in."""

    PYTHON = "Python"
    NODE = "Node.js"
    SQL = "SQL"


class Ability(StrEnum):
    """What not every peer has, or not by public means that an adapter could use.

    *SYNC*: handlers that are plain functions.  *HISTORY*: ended jobs stay in rows that can be multiplied.
    *DELAY*: jobs that are due later.  *QUEUES*: a worker works on many queues.  *PRIORITIES*: of single jobs.
    *RUNS*: durable runs of steps that are remembered, with timers and signals.
    """

    SYNC = "sync handlers"
    HISTORY = "history"
    DELAY = "delay"
    QUEUES = "many queues"
    PRIORITIES = "priorities"
    RUNS = "durable runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One row of the tables.

    *name* is also the adapter's module; *environment* is its folder of requirements, None where Holdfast's
    own environment serves.  *share* is the part of the jobs that it is given, so that a slow one does not
    take all day.  *needs_python* is the least version it runs on.  *note* stands beside its figures.
    """

    name: str
    label: str
    language: Language = Language.PYTHON
    environment: str | None = None
    share: float = 1.0
    abilities: frozenset[Ability] = frozenset()
    needs_python: tuple[int, int] = (3, 11)
    note: str = ""


ALL = frozenset(Ability)
QUEUE = ALL - {Ability.RUNS}

HOLDFAST = Contestant(name="holdfast", label="Holdfast", abilities=ALL)
FLOOR = Contestant(name="floor", label="floor: bare SQL by pgbench", language=Language.SQL)
FLOOR_IN_PYTHON = Contestant(name="floor_python", label="floor in Python: asyncpg")
FLOORS = (FLOOR, FLOOR_IN_PYTHON)

PEERS = (
    Contestant(
        name="procrastinate",
        label="procrastinate 3.10",
        environment="procrastinate",
        share=0.02,
        abilities=QUEUE,
    ),
    Contestant(
        name="pgqueuer",
        label="PgQueuer 1.6",
        environment="pgqueuer",
        share=0.5,
        abilities=QUEUE - {Ability.SYNC},
        note="refuses plain functions",
    ),
    Contestant(
        name="chancy",
        label="chancy 0.26",
        environment="chancy",
        share=0.1,
        abilities=frozenset({Ability.HISTORY, Ability.DELAY, Ability.PRIORITIES}),
        note="its executor for coroutines; plain functions need another executor",
    ),
    Contestant(
        name="dbos",
        label="DBOS 3.4",
        environment="dbos",
        share=0.02,
        abilities=frozenset({Ability.SYNC, Ability.HISTORY, Ability.RUNS}),
        note="no bulk enqueue: 1,000 calls in a transaction",
    ),
    Contestant(
        name="absurd",
        label="absurd 0.5",
        environment="absurd",
        share=0.03,
        abilities=frozenset({Ability.RUNS}),
        note="no bulk enqueue: 1,000 calls in a transaction",
    ),
    Contestant(
        name="awa",
        label="Awa 0.6",
        environment="awa",
        share=0.2,
        abilities=frozenset({Ability.DELAY, Ability.PRIORITIES}),
    ),
    Contestant(
        name="oban",
        label="Oban for Python 0.7",
        environment="oban",
        share=0.1,
        abilities=QUEUE - {Ability.SYNC},
        needs_python=(3, 12),
    ),
    Contestant(
        name="graphile_worker",
        label="graphile-worker 0.18",
        language=Language.NODE,
        environment="graphile_worker",
        abilities=frozenset({Ability.DELAY, Ability.PRIORITIES}),
        note="keeps no history: a finished job is deleted",
    ),
    Contestant(
        name="pg_boss",
        label="pg-boss 12.35",
        language=Language.NODE,
        environment="pg_boss",
        abilities=QUEUE - {Ability.SYNC},
        note="one handler call for a whole batch",
    ),
)
EVERYBODY = (HOLDFAST, *PEERS)


def able(*abilities: Ability) -> tuple[Contestant, ...]:
    """Return everybody who has all these *abilities*, Holdfast first."""
    return tuple(one for one in EVERYBODY if one.abilities.issuperset(abilities))


def contestant(name: str) -> Contestant:
    """Return the one of that name; raises KeyError."""
    return {one.name: one for one in (*EVERYBODY, *FLOORS)}[name]
