"""Statements about attempts: claim, finish, put back, progress.  Every write names job and attempt."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Complete, Fail, PutBack, Stop
from holdfast.rules.marks import Horizon, from_the_start
from holdfast.store.claimed import claimed
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, is_any, numbers, sparse

_SQL = blocks("attempts")
_BY_ID = attrgetter("fence.job_id")

# No end is told to be longer ago, in seconds: `delivery_horizon` waits as long for those that are under way.
LONGEST_AGO = 0.05

Final = Complete | Fail | Stop


class Fence(NamedTuple):
    """Job id and attempt number: what every write of an attempt names."""

    job_id: int
    attempt: int


class Turn(msgspec.Struct, frozen=True, gc=False):
    """When the handler of an attempt *began*, by the monotonic clock, that has others of its key beside it.

    It *is_behind* one whose end was not known to be written when it ended itself.  *apart* is for how many
    seconds it ran that no other can be told to have run in.
    """

    began: float
    is_behind: bool
    apart: float


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ends its job; *seconds* is how long the handler ran, *kind* is for whoever counts.

    *heir* is an attempt claimed ahead that has got its permit, and *at* when, by the monotonic clock: the
    ends of those that share a permit are told exactly, for the next one began at once.  So are those of the
    same key, which have their *turn*.
    """

    fence: Fence
    decision: Final
    seconds: float = 0.0
    kind: str = ""
    heir: Fence | None = None
    at: float = 0.0
    turn: Turn | None = None

    @property
    def apart(self) -> float:
        """How many seconds the handler ran, as far as that is told by rows of their own."""
        return self.seconds if self.turn is None else self.turn.apart


class Returned(msgspec.Struct, frozen=True, gc=False):
    """An attempt whose job goes on; *seconds* and *kind* are for whoever counts, empty from the buffer."""

    fence: Fence
    decision: PutBack
    seconds: float = 0.0
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker wants to claim: *limit* jobs, of which the first *free* go to free slots at once.

    *more* are claimed ahead: of permits of a limited queue, for which this worker has others running, or of
    their key's turn, up to *in_a_row* of each key.  Of the keys *own* this worker has jobs that wait for
    their turn, the best of them of that priority, and takes what is of a better one beside them.
    *after* says for each line of each queue behind which place to look; see `Marks`.  With *hurried* what
    somebody has locked, or had, is left for a look that is not.
    """

    worker_id: int
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    limit: int
    free: int
    more: int = 0
    in_a_row: int = 0
    own: Sequence[tuple[str, int]] = ()
    after: Sequence[int] | None = None
    hurried: bool = False


def claim_jobs(demand: Demand) -> Statement[list[ClaimedJob]]:
    """Claim from queues without limits."""
    return Statement("claim_jobs", _SQL["claim_jobs"], _asked(demand), claimed)


def claim_bundled(demand: Demand, kinds: Sequence[str]) -> Statement[list[ClaimedJob]]:
    """Claim from queues without limits, and put what is fresh and of these *kinds* into bundles."""
    parameters = (*_asked(demand), list(kinds))
    return Statement("claim_bundled", _SQL["claim_bundled"], parameters, claimed)


def _asked(demand: Demand) -> tuple[Any, ...]:
    after = from_the_start(demand.queues) if demand.after is None else demand.after
    return (
        demand.worker_id,
        list(demand.queues),
        list(demand.kinds),
        demand.free,
        demand.limit,
        numbers(after),
        not demand.hurried,
    )


def claim_announced(worker_id: int, kinds: Sequence[str], job_id: int) -> Statement[list[ClaimedJob]]:
    """Claim this job if it is of one of *kinds*, in a queue without limits, and nobody has it yet."""
    parameters = (worker_id, list(kinds), job_id)
    return Statement("claim_announced", _SQL["claim_announced"], parameters, claimed)


def lock_limits(queue: str) -> Statement[list[object]]:
    """Serialise the claims of one limited queue until the transaction ends."""
    return Statement("lock_limits", _SQL["lock_limits"], (queue,), column)


def claim_limited(demand: Demand, bundling: Sequence[str] = ()) -> Statement[list[ClaimedJob]]:
    """Claim from the one queue of *demand* under its limits.

    What is fresh and of kinds *bundling* may go into bundles.
    """
    [queue] = demand.queues
    parameters = (
        demand.worker_id,
        queue,
        list(demand.kinds),
        demand.free,
        demand.limit,
        demand.more,
        demand.in_a_row,
        [key for key, _ in demand.own],
        numbers([priority for _, priority in demand.own]),
        list(bundling),
    )
    return Statement("claim_limited", _SQL["claim_limited"], parameters, claimed)


def find_leftovers(
    queues: Sequence[str], kinds: Sequence[str], after: Sequence[int], until: Sequence[int]
) -> Statement[Horizon]:
    """Look which transactions run, and what is still available between these places of each line."""
    parameters = (list(queues), list(kinds), numbers(after), numbers(until))
    return Statement("find_leftovers", _SQL["find_leftovers"], parameters, _horizon)


def _horizon(rows: Sequence[Row]) -> Horizon:
    next_number, running, left, server, took = rows[0]
    return Horizon(
        next_number, frozenset(msgspec.json.decode(running)), msgspec.json.decode(left), server, took
    )


def are_plain(ended: Sequence[Ended]) -> bool:
    """True where `complete_jobs` can end these: nothing is to be said of any, as of most jobs."""
    return all(
        type(one.decision) is Complete and one.decision.result is None and one.heir is None for one in ended
    )


def complete_jobs(ended: Sequence[Ended]) -> Statement[list[int]]:
    """End attempts that `are_plain`, but for children; answers the jobs that it has ended."""
    ended = sorted(ended, key=_BY_ID)
    parameters = (
        numbers([one.fence.job_id for one in ended]),
        numbers([one.fence.attempt for one in ended]),
        numbers([one.apart for one in ended]),
    )
    return Statement("complete_jobs", _SQL["complete_jobs"], parameters, column)


def complete_one(fence: Fence, result: str | None, seconds: float) -> Statement[list[int]]:
    """End an attempt that is completed, and its job, inside a transaction of somebody else's."""
    return Statement("complete_one", _SQL["complete_one"], (*fence, result, seconds), column)


def finish_jobs(ended: Sequence[Ended]) -> Statement[list[int]]:
    """End attempts and their jobs; answers the jobs whose lease still held.

    Those that handed a permit on come in the order in which they had it.
    """
    permits = _Permits(ended)
    ended = sorted(ended, key=_BY_ID)
    decisions = [one.decision for one in ended]
    parameters = (
        numbers([one.fence.job_id for one in ended]),
        numbers([one.fence.attempt for one in ended]),
        sparse([_OUTCOME[type(decision)] for decision in decisions]),
        sparse([getattr(decision, "reason", None) for decision in decisions]),
        sparse([getattr(decision, "result", None) for decision in decisions]),
        sparse([getattr(decision, "error", None) for decision in decisions]),
        numbers([one.apart for one in ended]),
        numbers([1 if isinstance(decision, Fail) and decision.counts else 0 for decision in decisions]),
        *permits.parameters(ended),
    )
    return Statement("finish_jobs", _SQL["finish_jobs"], parameters, column)


class _Permits:
    """How permits of limited queues went from hand to hand among attempts, which come in that order.

    *since* is how many seconds ago each heir got its permit, *roots* with which of these attempts that permit
    was last written.
    """

    def __init__(self, ended: Sequence[Ended]) -> None:
        self.now = time.monotonic()
        self.since: dict[Fence, float] = {}
        self.roots: dict[Fence, int] = {}
        for one in ended:
            if one.heir is not None:
                self.since[one.heir] = self._ago(one)
                self.roots[one.heir] = self.roots.setdefault(one.fence, one.fence.job_id)

    def _ago(self, one: Ended) -> float:
        return min(self.now - one.at, LONGEST_AGO)

    def parameters(self, ended: Sequence[Ended]) -> tuple[str, ...]:
        """Return what `finish_jobs` wants to know of permits, for these attempts and for heirs that go on."""
        if not self.since:
            return _NO_PERMITS
        heirs = sorted(self.since.keys() - {one.fence for one in ended})
        return (
            numbers([0.0 if one.heir is None else self._ago(one) for one in ended]),
            numbers([self.since.get(one.fence) for one in ended]),
            numbers([self.roots.get(one.fence) for one in ended]),
            numbers([fence.job_id for fence in heirs]),
            numbers([fence.attempt for fence in heirs]),
            numbers([self.since[fence] for fence in heirs]),
            numbers([self.roots[fence] for fence in heirs]),
        )


_NO_PERMITS = ("{}",) * 7


_OUTCOME: dict[type, str | None] = {Complete: None, Fail: "failed", Stop: "cancelled"}


def put_back_jobs(returned: Sequence[Returned]) -> Statement[list[int]]:
    """End attempts whose jobs go on; answers the jobs whose lease still held."""
    parameters = (
        numbers([one.fence.job_id for one in returned]),
        numbers([one.fence.attempt for one in returned]),
        [one.decision.outcome.value for one in returned],
        numbers([one.decision.delay for one in returned]),
        numbers([int(one.decision.counts) for one in returned]),
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


def cancel_requests(held: Collection[Fence]) -> Statement[list[Fence]]:
    """Find those of the jobs *held* that somebody wants stopped, by whatever attempt holds them now."""
    parameters = (numbers([fence.job_id for fence in held]),)
    return Statement("cancel_requests", _SQL["cancel_requests"], parameters, _fences)


def attempt_outcomes(fences: Sequence[Fence]) -> Statement[list[tuple[Fence, str]]]:
    """Find how attempts have ended, as history says; one that is missing has not."""
    parameters = (numbers([fence.job_id for fence in fences]), numbers([fence.attempt for fence in fences]))
    return Statement("attempt_outcomes", _SQL["attempt_outcomes"], parameters, _outcomes)


def held_attempts(worker_id: int) -> Statement[list[Fence]]:
    """Find the attempts that a worker holds, but for those in bundles."""
    return Statement("held_attempts", _SQL["held_attempts"], (worker_id,), _fences)


def _outcomes(rows: Sequence[Row]) -> list[tuple[Fence, str]]:
    return [(Fence(row[0], row[1]), row[2]) for row in rows]


def _fences(rows: Sequence[Row]) -> list[Fence]:
    return [Fence(row[0], row[1]) for row in sorted(rows, key=lambda row: row[0])]
