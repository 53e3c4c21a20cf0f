"""Statements about runners: registration, what is heard of them, and who hears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.model.runner import Registration, Runner
from holdfast.model.worker import WorkerState
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, first_value, is_any

_SQL = blocks("runners")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRunner:
    """A runner as it registers; *protocol* is what was agreed.

    *ttl* is how many seconds its lease lasts without a word from it: longer than `Intervals.lost_after`.
    """

    name: str
    host: str
    version: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    slots: int
    ttl: float
    labels: tuple[str, ...] = ()
    capacity: dict[str, int] = field(default_factory=dict)
    protocol: int = 1


def register_runner(runner: NewRunner) -> Statement[Registration]:
    """Make a runner, or begin a new term of the one with this name."""
    parameters = (
        *(runner.name, runner.host, runner.version, list(runner.queues), list(runner.kinds)),
        *(list(runner.labels), runner.slots, msgspec.json.encode(runner.capacity).decode()),
        *(runner.protocol, runner.ttl),
    )
    return Statement("register_runner", _SQL["register_runner"], parameters, _registration)


def _registration(rows: Sequence[Row]) -> Registration:
    worker_id, term, state, former = rows[0]
    before = None if former is None else msgspec.json.decode(former)
    return Registration(worker_id, term, WorkerState(state), before)


def attach_token(worker_id: int, token_id: int) -> Statement[bool]:
    """Let one token speak for a runner, and no other any more."""
    return Statement("attach_token", _SQL["attach_token"], (worker_id, token_id), is_any)


def hear_runners(callers: Sequence[tuple[int, int]], contact_after: float) -> Statement[dict[int, Runner]]:
    """Prolong the leases of runners, given as id and token; one that is missing may not speak."""
    ids, tokens = [worker_id for worker_id, _ in callers], [token_id for _, token_id in callers]
    return Statement("hear_runners", _SQL["hear_runners"], (ids, tokens, contact_after), _heard)


def see_runners(callers: Sequence[tuple[int, int]]) -> Statement[dict[int, Runner]]:
    """Read how runners stand, given as id and token; one that is missing may not speak."""
    ids, tokens = [worker_id for worker_id, _ in callers], [token_id for _, token_id in callers]
    return Statement("see_runners", _SQL["see_runners"], (ids, tokens), _heard)


def _heard(rows: Sequence[Row]) -> dict[int, Runner]:
    return {row[0]: _runner(row) for row in rows}


def _runner(row: Row) -> Runner:
    worker_id, name, term, state, labels, kinds, queues, slots, capacity = row
    limits = msgspec.json.decode(capacity, type=dict[str, int])
    return Runner(
        *(worker_id, name, term, WorkerState(state), frozenset(labels), frozenset(kinds)),
        *(tuple(queues), slots, limits),
    )


def silenced_runners(worker_ids: Sequence[int]) -> Statement[list[int]]:
    """Find those of these runners whose token was revoked."""
    return Statement("silenced_runners", _SQL["silenced_runners"], (list(worker_ids),), column)


def leave_runner(worker_id: int, token_id: int) -> Statement[bool]:
    """Let a runner go; False: it has accepted something, or another registration has its name."""
    return Statement("leave_runner", _SQL["leave_runner"], (worker_id, token_id), is_any)


def resume_runner(worker_id: int) -> Statement[str | None]:
    """Undo the drain of a runner; answers what changed as JSON text, None where there is none."""
    return Statement("resume_runner", _SQL["resume_runner"], (worker_id,), first_value)


def name_runner(worker_id: int) -> Statement[str | None]:
    """Look up the name of a runner; None where it was forgotten."""
    return Statement("name_runner", _SQL["name_runner"], (worker_id,), first_value)


def has_runners() -> Statement[bool]:
    """Look whether a runner is there that may hold something."""
    return Statement("has_runners", _SQL["has_runners"], (), first_value)


def open_server(name: str) -> Statement[int]:
    """Say that a process begins to hear runners; answers its id."""
    return Statement("open_server", _SQL["open_server"], (name,), first_value)


def renew_server(server_id: int) -> Statement[bool]:
    """Say that it still does; False: it was forgotten."""
    return Statement("renew_server", _SQL["renew_server"], (server_id,), is_any)


def close_server(server_id: int) -> Statement[bool]:
    """Say that it does no more."""
    return Statement("close_server", _SQL["close_server"], (server_id,), is_any)
