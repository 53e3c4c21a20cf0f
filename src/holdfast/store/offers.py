"""Statements about how jobs come to runners: what is there, who has room, what goes to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.runner import Assignment
from holdfast.rules.matching import Candidate, Route
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement
from holdfast.store.workers import Rescued, rescued

_SQL = blocks("offers")


def open_routes(queues: Sequence[str]) -> Statement[list[Route]]:
    """Find the routes of these queues that have something to take."""
    return Statement("open_routes", _SQL["open_routes"], (list(queues),), _routes)


def _routes(rows: Sequence[Row]) -> list[Route]:
    return [Route(row[0], row[1], row[2], frozenset(row[3]), row[4], row[5]) for row in rows]


@dataclass(frozen=True, slots=True)
class Room:
    """What a runner may hold, and what it holds of each queue."""

    worker_id: int
    term: int
    slots: int
    held: dict[str, int]


def lock_runners(worker_ids: Sequence[int]) -> Statement[list[int]]:
    """Lock runners; those that may claim nothing are missing."""
    return Statement("lock_runners", _SQL["lock_runners"], (sorted(worker_ids),), _ids)


def _ids(rows: Sequence[Row]) -> list[int]:
    return [row[0] for row in rows]


def runners_room(worker_ids: Sequence[int]) -> Statement[list[Room]]:
    """See what runners hold, after `lock_runners` in the same transaction."""
    return Statement("runners_room", _SQL["runners_room"], (list(worker_ids),), _rooms)


def _rooms(rows: Sequence[Row]) -> list[Room]:
    return [Room(row[0], row[1], row[2], msgspec.json.decode(row[3], type=dict[str, int])) for row in rows]


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """How many more jobs a queue may run, None without a limit, and how many each of its keys may."""

    room: int | None
    key_limit: int


def queue_room(queue: str) -> Statement[QueueRoom]:
    """See what a limited queue leaves, after `lock_limits` in the same transaction."""
    return Statement("queue_room", _SQL["queue_room"], (queue,), _queue_room)


def _queue_room(rows: Sequence[Row]) -> QueueRoom:
    return QueueRoom(*rows[0])


def lock_heads(route_ids: Sequence[int], limit: int) -> Statement[list[Candidate]]:
    """Lock up to *limit* jobs of each route."""
    return Statement("lock_heads", _SQL["lock_heads"], (list(route_ids), limit), _candidates)


def lock_keyed_heads(route_ids: Sequence[int], limit: int, key_limit: int) -> Statement[list[Candidate]]:
    """Lock up to *limit* jobs of each route and concurrency key, as many as the key leaves."""
    parameters = (list(route_ids), limit, key_limit)
    return Statement("lock_keyed_heads", _SQL["lock_keyed_heads"], parameters, _candidates)


def _candidates(rows: Sequence[Row]) -> list[Candidate]:
    return [_candidate(*row) for row in rows]


def _candidate(*values: Any) -> Candidate:
    job_id, queue, kind, priority, place, labels, *rest = values
    return Candidate(job_id, queue, kind, priority, place, frozenset(labels), *rest)


def offer_jobs(pairs: Sequence[tuple[int, int]], hashes: Sequence[bytes]) -> Statement[list[Assignment]]:
    """Give locked jobs to runners: job id and runner id, with the hash of each assignment's token."""
    parameters = ([job_id for job_id, _ in pairs], [worker_id for _, worker_id in pairs], list(hashes))
    return Statement("offer_jobs", _SQL["offer_jobs"], parameters, _assignments)


def show_offers_again(fences: Sequence[Fence], hashes: Sequence[bytes]) -> Statement[list[Assignment]]:
    """Read offers that were not accepted once more, with new tokens."""
    parameters = ([fence.job_id for fence in fences], [fence.attempt for fence in fences], list(hashes))
    return Statement("show_offers_again", _SQL["show_offers_again"], parameters, _assignments)


def _assignments(rows: Sequence[Row]) -> list[Assignment]:
    return [Assignment(*row) for row in rows]


def expire_offers(term: int, seconds: float, limit: int) -> Statement[list[Rescued]]:
    """Release offers that nobody accepted."""
    return Statement("expire_offers", _SQL["expire_offers"], (term, seconds, limit), rescued)


def release_offers(worker_id: int) -> Statement[list[Rescued]]:
    """Release what a runner was offered and has not accepted."""
    return Statement("release_offers", _SQL["release_offers"], (worker_id,), rescued)


@dataclass(frozen=True, slots=True)
class Unpinned:
    """How many jobs others may take now, and the seconds until the next one."""

    count: int
    next_in: float | None


def unpin_jobs(term: int, limit: int) -> Statement[Unpinned]:
    """Let others take jobs whose runner had its time."""
    return Statement("unpin_jobs", _SQL["unpin_jobs"], (term, limit), _unpinned)


def _unpinned(rows: Sequence[Row]) -> Unpinned:
    return Unpinned(rows[0][0], rows[0][1])
