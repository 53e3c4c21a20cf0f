"""Statements about workers: their lease, sleep, drain, loss and rescue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.worker import Contact, WorkerRecord, WorkerState
from holdfast.rules.liveness import Intervals, grade
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, first_value, is_any

_SQL = blocks("workers")

# Every priority is better: whoever sleeps is to be told of all jobs.
ASLEEP = 10
# How many workers' notes are read: each holds for all, and later ones reach further.
LATEST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """A process as it registers; *ttl* is its lease in seconds.

    *workflows* are those of its *kinds* whose jobs are runs; *makes_up* says that such a run, when its
    attempts are used up, gets one more to make up for what it did.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    slots: int
    ttl: float
    labels: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    makes_up: bool = False


@dataclass(frozen=True, slots=True)
class Rescued:
    """One job taken from a dead worker, and what became of it: lost, released, failed or cancelled."""

    job_id: int
    kind: str
    fate: str


def register_worker(worker: NewWorker) -> Statement[int]:
    """Make the row that is the lease of all jobs of a worker; answers its id."""
    parameters = (
        worker.name,
        worker.host,
        worker.pid,
        worker.version,
        list(worker.queues),
        list(worker.kinds),
        list(worker.labels),
        worker.slots,
        worker.ttl,
        list(worker.workflows),
        worker.makes_up,
    )
    return Statement("register_worker", _SQL["register_worker"], parameters, first_value)


def know_queues(queues: Sequence[str]) -> Statement[list[object]]:
    """Make sure that these queues have rows."""
    return Statement("know_queues", _SQL["know_queues"], (list(queues),), column)


def renew_worker(worker_id: int) -> Statement[WorkerState | None]:
    """Prolong the lease; answers the worker's state, or None where it was declared lost."""
    return Statement("renew_worker", _SQL["renew_worker"], (worker_id,), _state)


def _state(rows: Sequence[Row]) -> WorkerState | None:
    return WorkerState(rows[0][0]) if rows else None


def wake_below(worker_id: int, priority: int) -> Statement[bool]:
    """Say that jobs of a better priority than this are to be announced to the worker."""
    return Statement("wake_below", _SQL["wake_below"], (worker_id, priority), is_any)


def running_transactions() -> Statement[tuple[int, int]]:
    """Read the number of the oldest transaction that runs, and one above those of all that had one before."""
    return Statement("running_transactions", _SQL["running_transactions"], (), _numbers)


def _numbers(rows: Sequence[Row]) -> tuple[int, int]:
    oldest, following = rows[0]
    return oldest, following


def note_settled(worker_id: int, places: Mapping[str, Sequence[int]]) -> Statement[bool]:
    """Note up to where a worker has found that nothing is left, for whoever begins after it."""
    return Statement("note_settled", _SQL["note_settled"], (worker_id, _noted(places)), is_any)


def find_settled(kinds: Sequence[str]) -> Statement[list[dict[str, list[int]]]]:
    """Read what the latest workers have noted that knew all of these kinds."""
    return Statement("find_settled", _SQL["find_settled"], (list(kinds), LATEST), _settled)


def _noted(places: Mapping[str, Sequence[int]]) -> str:
    return msgspec.json.encode(places).decode()


def _settled(rows: Sequence[Row]) -> list[dict[str, list[int]]]:
    return [msgspec.json.decode(row[0], type=dict[str, list[int]]) for row in rows]


def close_worker(worker_id: int) -> Statement[bool]:
    """Let no more claims of a worker in, and wait for those under way; False: it is not there any more."""
    return Statement("close_worker", _SQL["close_worker"], (worker_id,), is_any)


def end_worker(worker_id: int, places: Mapping[str, Sequence[int]] | None = None) -> Statement[bool]:
    """Let a worker leave in good order; *places* are those that `note_settled` would note."""
    noted = None if places is None else _noted(places)
    return Statement("end_worker", _SQL["end_worker"], (worker_id, noted), is_any)


def drain_worker(worker_id: int) -> Statement[str | None]:
    """Ask a worker to finish and leave; answers what changed as JSON text, None: it is not online."""
    return Statement("drain_worker", _SQL["drain_worker"], (worker_id,), first_value)


def list_workers(
    *, all_states: bool, limit: int, worker_id: int | None = None
) -> Statement[list[WorkerRecord]]:
    """Find workers, newest first: those that live, *all_states*, or the one that is named."""
    return Statement("list_workers", _SQL["list_workers"], (all_states, limit, worker_id), _records)


def _records(rows: Sequence[Row]) -> list[WorkerRecord]:
    return [_record(list(row)) for row in rows]


def _record(values: list[Any]) -> WorkerRecord:
    values[7] = state = WorkerState(values[7])
    values[-1] = None if values[-1] is None else _contact(state, values[-1])
    return WorkerRecord(*values)


def _contact(state: WorkerState, text: str) -> Contact:
    told = msgspec.json.decode(text)
    ttl = told.pop("ttl")
    heard = grade(state, told["silence"], Intervals.leasing_for(ttl))
    return msgspec.convert(told | {"grade": heard, "lost_after": ttl}, Contact)


def worker_state(worker_id: int) -> Statement[WorkerState | None]:
    """Look whether a worker may hold leases; None where there is no such worker."""
    return Statement("worker_state", _SQL["worker_state"], (worker_id,), _state)


def declare_lost(term: int) -> Statement[list[int]]:
    """Mark workers whose lease ran out; answers their ids."""
    return Statement("declare_lost", _SQL["declare_lost"], (term,), column)


def rescue_jobs(term: int, limit: int, *, also_left: bool = True) -> Statement[list[Rescued]]:
    """Take jobs from workers that are lost and, with *also_left*, those that left."""
    return Statement("rescue_jobs", _SQL["rescue_jobs"], (term, limit, also_left), rescued)


def lost_hold_jobs() -> Statement[bool]:
    """Look whether a rescue has left anything to workers that are lost."""
    return Statement("lost_hold_jobs", _SQL["lost_hold_jobs"], (), first_value)


def clear_workers(term: int, most: int) -> Statement[list[int]]:
    """Mark workers that have ended and hold nothing; no rescue looks at them again.  Answers their ids."""
    return Statement("clear_workers", _SQL["clear_workers"], (term, most), column)


def rescued(rows: Sequence[Row]) -> list[Rescued]:
    """Read what became of jobs that were taken away."""
    return [Rescued(*row) for row in rows]
