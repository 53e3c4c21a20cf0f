"""Statements about attempts: claim, finish, put back, progress.  Every write names job and attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Complete, Fail, PutBack, Stop
from holdfast.rules.marks import Horizon, from_the_start
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, is_any, numbers

_SQL = blocks("attempts")
_BEST_FIRST = attrgetter("priority", "place")

T = TypeVar("T")

Final = Complete | Fail | Stop


class Fence(NamedTuple):
    """Job id and attempt number: what every write of an attempt names."""

    job_id: int
    attempt: int


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ends its job; *seconds* is how long the handler ran, *kind* is for whoever counts."""

    fence: Fence
    decision: Final
    seconds: float = 0.0
    kind: str = ""


class Returned(msgspec.Struct, frozen=True, gc=False):
    """An attempt whose job goes on; *seconds* and *kind* are for whoever counts, empty from the buffer."""

    fence: Fence
    decision: PutBack
    seconds: float = 0.0
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker wants to claim: *limit* jobs, of which the first *free* go to free slots at once.

    *after* says for each line of each queue behind which place to look; see `Marks`.
    """

    worker_id: int
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    limit: int
    free: int
    after: Sequence[int] | None = None


def claim_jobs(demand: Demand) -> Statement[list[ClaimedJob]]:
    """Claim from queues without limits."""
    after = from_the_start(demand.queues) if demand.after is None else demand.after
    parameters = (demand.worker_id, list(demand.queues), list(demand.kinds), demand.free, demand.limit, after)
    return Statement("claim_jobs", _SQL["claim_jobs"], parameters, _claimed)


def lock_limits(queue: str) -> Statement[list[object]]:
    """Serialise the claims of one limited queue until the transaction ends."""
    return Statement("lock_limits", _SQL["lock_limits"], (queue,), column)


def claim_limited(demand: Demand, queue: str) -> Statement[list[ClaimedJob]]:
    """Claim from one queue under its limits."""
    parameters = (demand.worker_id, queue, list(demand.kinds), demand.free, demand.limit)
    return Statement("claim_limited", _SQL["claim_limited"], parameters, _claimed)


def _claimed(rows: Sequence[Row]) -> list[ClaimedJob]:
    # RETURNING promises no order: strict priority, then oldest first, is restored here.
    return sorted((ClaimedJob(*row) for row in rows), key=_BEST_FIRST)


def find_leftovers(
    queues: Sequence[str], kinds: Sequence[str], after: Sequence[int], until: Sequence[int]
) -> Statement[Horizon]:
    """Look which transactions run, and what is still available between these places of each line."""
    parameters = (list(queues), list(kinds), after, until)
    return Statement("find_leftovers", _SQL["find_leftovers"], parameters, _horizon)


def _horizon(rows: Sequence[Row]) -> Horizon:
    next_number, running, left, server = rows[0]
    return Horizon(next_number, frozenset(running), left, server)


def finish_jobs(ended: Sequence[Ended]) -> Statement[list[int]]:
    """End attempts and their jobs; answers the jobs whose lease still held."""
    ended = sorted(ended, key=lambda one: one.fence.job_id)
    decisions = [one.decision for one in ended]
    if all(type(decision) is Complete and decision.result is None for decision in decisions):
        # Most jobs end well and have nothing to say.
        decisions = []
    parameters = (
        numbers([one.fence.job_id for one in ended]),
        numbers([one.fence.attempt for one in ended]),
        _sparse([_OUTCOME[type(decision)] for decision in decisions]),
        _sparse([getattr(decision, "reason", None) for decision in decisions]),
        _sparse([getattr(decision, "result", None) for decision in decisions]),
        _sparse([getattr(decision, "error", None) for decision in decisions]),
        numbers([one.seconds for one in ended]),
        _sparse([1 if isinstance(decision, Fail) and decision.counts else None for decision in decisions]),
    )
    return Statement("finish_jobs", _SQL["finish_jobs"], parameters, column)


def _sparse(values: list[T | None]) -> list[T | None]:
    # unnest() gives as many nulls for no values at all.
    return values if any(value is not None for value in values) else []


_OUTCOME: dict[type, str | None] = {Complete: None, Fail: "failed", Stop: "cancelled"}


def put_back_jobs(returned: Sequence[Returned]) -> Statement[list[int]]:
    """End attempts whose jobs go on; answers the jobs whose lease still held."""
    parameters = (
        [one.fence.job_id for one in returned],
        [one.fence.attempt for one in returned],
        [one.decision.outcome.value for one in returned],
        [one.decision.delay for one in returned],
        [int(one.decision.counts) for one in returned],
        [one.decision.reason for one in returned],
        [one.decision.error for one in returned],
    )
    return Statement("put_back_jobs", _SQL["put_back_jobs"], parameters, column)


def last_failure(job_id: int) -> Statement[tuple[str, str | None]]:
    """Find the reason and the error of the last attempt that counted as a failure."""
    return Statement("last_failure", _SQL["last_failure"], (job_id,), _failure)


def _failure(rows: Sequence[Row]) -> tuple[str, str | None]:
    return (rows[0][0], rows[0][1]) if rows else ("no reason is recorded", None)


def start_jobs(begun: Sequence[tuple[Fence, float]]) -> Statement[list[int]]:
    """Mark buffered attempts as running; each comes with how many seconds ago its handler began."""
    begun = sorted(begun, key=lambda one: one[0].job_id)
    parameters = (
        numbers([fence.job_id for fence, _ in begun]),
        numbers([fence.attempt for fence, _ in begun]),
        numbers([seconds for _, seconds in begun]),
    )
    return Statement("start_jobs", _SQL["start_jobs"], parameters, column)


def report_progress(fence: Fence, progress: float, note: str | None) -> Statement[bool]:
    """Write how far an attempt is; False: the lease was lost."""
    parameters = (fence.job_id, fence.attempt, progress, note)
    return Statement("report_progress", _SQL["report_progress"], parameters, is_any)


def check_lease(fence: Fence) -> Statement[bool]:
    """Lock a held attempt until the transaction ends; False: the lease was lost."""
    return Statement("check_lease", _SQL["check_lease"], (fence.job_id, fence.attempt), is_any)


def cancel_requests(worker_id: int) -> Statement[list[Fence]]:
    """Find the attempts of a worker that somebody wants stopped."""
    return Statement("cancel_requests", _SQL["cancel_requests"], (worker_id,), _fences)


def held_attempts(worker_id: int) -> Statement[list[Fence]]:
    """Find everything that a worker holds."""
    return Statement("held_attempts", _SQL["held_attempts"], (worker_id,), _fences)


def _fences(rows: Sequence[Row]) -> list[Fence]:
    return [Fence(row[0], row[1]) for row in sorted(rows, key=lambda row: row[0])]
