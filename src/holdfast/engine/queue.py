"""The queue of runs in PostgreSQL: the jobs of the kinds that an engine knows."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace
from typing import Any, Unpack

import msgspec

from holdfast.app.keywords import EnqueueOptions
from holdfast.app.options import chosen, resolved
from holdfast.client.intake import unchecked_request
from holdfast.engine.claims import Claim
from holdfast.engine.config import EngineConfig
from holdfast.engine.outcomes import Outcome, transition
from holdfast.engine.standing import Standing
from holdfast.errors import DatabaseRefused, DatabaseUnavailable, LeaseLost, OptionInvalid
from holdfast.model.job import ClaimedJob, JobHandle
from holdfast.model.outcome import PutBack, Suspend, Transition
from holdfast.model.worker import Renewal
from holdfast.rules.backoff import DEFAULT_BACKOFF, stored_backoff
from holdfast.rules.outcome import released
from holdfast.rules.reports import is_recorded
from holdfast.runtime.pauses import doubling
from holdfast.store import attempts, bundles, jobs, leader, leases, runs, workers
from holdfast.store.attempts import Demand, Ended, Fence, Returned
from holdfast.store.database import Database
from holdfast.store.foreign import run_foreign
from holdfast.store.queues import queue_limits
from holdfast.store.runs import Suspended
from holdfast.store.statement import Statement
from holdfast.store.workers import Rescued

BATCH = 500
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class PostgresQueue:
    """Runs as jobs: with priorities, limits, unique keys, retries and a timeline like any others.

    *settle* is awaited before an attempt ends, for its notes end with its lease.
    """

    def __init__(
        self, database: Database, config: EngineConfig, settle: Callable[[], Awaitable[None]]
    ) -> None:
        self._database, self._config, self._settle = database, config, settle
        self.standing = Standing(database, config)
        self._held: dict[Fence, float] = {}
        self._claiming, self._doubtful = asyncio.Lock(), False

    async def enqueue(
        self, kind: str, spec: Mapping[str, Any], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Put a run in, on a caller's *connection* in its transaction; *spec* is a JSON object.

        Raises `InputInvalid`, `DuplicateJob`.
        """
        if not isinstance(spec, Mapping):
            raise OptionInvalid("spec", spec, "give a dictionary")
        new = resolved(unchecked_request(kind, spec), chosen(options))
        statement = jobs.enqueue_jobs([new])
        if connection is None:
            [handle] = await self._database.run(statement)
        else:
            [handle] = await run_foreign(connection, statement, self._database.schema)
        return handle

    async def claim(self, limit: int = 1) -> list[Claim]:
        """Take up to *limit* runs, the best first; none while the worker is asked to leave."""
        async with self._claiming:
            worker_id = await self.standing.renewed()
            if worker_id is None:
                return []
            if self._doubtful:
                await self._give_back(frozenset(self._held), "the answer of the claim was lost")
            self._doubtful = True
            claimed = await self._claimed(worker_id, limit)
            self._doubtful = False
            self._held |= {Fence(job.id, job.attempt): time.monotonic() for job in claimed}
            return [_claim(worker_id, job) for job in claimed]

    async def _claimed(self, worker_id: int, limit: int) -> list[ClaimedJob]:
        queues = tuple(self._config.queues)
        found = await self._database.run(queue_limits(queues))
        limited = [queue.name for queue in found if queue.limited]
        plain = tuple(queue for queue in queues if queue not in limited)
        demand = Demand(
            worker_id=worker_id, queues=plain, kinds=tuple(self._config.kinds), limit=limit, free=limit
        )
        claimed = await self._database.run(attempts.claim_jobs(demand)) if plain else []
        for queue in limited:
            if (free := limit - len(claimed)) > 0:
                rest = replace(demand, queues=(queue,), limit=free, free=free)
                more = await self._database.run_read_committed(attempts.claim_limited(rest))
                claimed += more
        return claimed

    async def renew(self, claim: Claim) -> Renewal:
        """Prolong the lease of this process, and hear what is wanted of the run; raises `LeaseLost`."""
        renewal = await self._database.run(leases.renew_attempt(claim.fence))
        if renewal is None:
            self._held.pop(claim.fence, None)
            raise LeaseLost(claim.run_id, claim.attempt)
        return renewal

    async def end(self, claim: Claim, outcome: Outcome) -> None:
        """End an attempt; raises `LeaseLost`.

        While the database is away, or refuses it, it is tried again for as long as a lease lasts.  What is
        raised then leaves the run with this engine, which may call this again.
        """
        decision = transition(claim, outcome, random.random)
        await self._settle()
        seconds = time.monotonic() - self._held.get(claim.fence, time.monotonic())
        give_up, doubtful = time.monotonic() + self._config.ttl, False
        pauses = doubling(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                # Made anew for each try: the moment at which a suspended run is due stays the same.
                ended = await self._database.run_read_committed(_ending(claim, decision, seconds))
                break
            except (DatabaseUnavailable, DatabaseRefused) as error:
                # A refusal may be of the moment, such as a lock or a time that ran out.
                if time.monotonic() > give_up:
                    raise
                doubtful = doubtful or isinstance(error, DatabaseUnavailable)
            await asyncio.sleep(next(pauses))
        self._held.pop(claim.fence, None)
        # The answer of an earlier try may be what was lost: then the attempt has ended by now, as was wanted.
        if not ended and not (doubtful and await self._has_ended(claim, decision)):
            raise LeaseLost(*claim.fence)

    async def _has_ended(self, claim: Claim, decision: Transition) -> bool:
        """Read in history whether an attempt has ended in this way, and not by a rescue."""
        ended = await self._database.run(attempts.attempt_outcomes([claim.fence]))
        return any(is_recorded(decision, outcome) for _, outcome in ended)

    async def rescue(self) -> list[Rescued]:
        """Take runs from workers whose lease has run out; none where a leader does so already."""
        async with self.standing.leading() as term:
            if term is None:
                return []
            await self._database.run(workers.declare_lost(term))
            await self._database.run_read_committed(bundles.untie_orphans(term))
            return await self._database.run(workers.rescue_jobs(term, BATCH))

    async def stage(self) -> int:
        """Make runs available whose time has come; none where a leader does so already."""
        async with self.standing.leading() as term:
            return 0 if term is None else (await self._database.run(leader.stage_jobs(term, BATCH))).count

    async def close(self) -> None:
        """Give back what is still held, unspent, and leave."""
        await self._give_back(frozenset(), "the engine is stopping")
        await self.standing.end()

    async def _give_back(self, known: Set[Fence], reason: str) -> None:
        """Give back what this worker holds, other than what is *known*."""
        if self.standing.worker_id is None:
            return
        found = await self._database.run(attempts.held_attempts(self.standing.worker_id))
        if strays := [Returned(fence, released(reason)) for fence in found if fence not in known]:
            await self._database.run(attempts.put_back_jobs(strays))


def _claim(worker_id: int, job: ClaimedJob) -> Claim:
    return Claim(
        run_id=job.id,
        attempt=job.attempt,
        worker_id=worker_id,
        kind=job.kind,
        spec=msgspec.json.decode(job.args),
        queue=job.queue,
        failures=job.failures,
        max_attempts=job.max_attempts,
        enqueued_at=job.enqueued_at,
        claimed_at=job.claimed_at,
        retry=stored_backoff(job.retry) or DEFAULT_BACKOFF,
    )


def _ending(claim: Claim, decision: Transition, seconds: float) -> Statement[list[int]]:
    match decision:
        case PutBack():
            return attempts.put_back_jobs([Returned(claim.fence, decision, seconds, claim.kind)])
        case Suspend():
            return runs.suspend_runs([Suspended(claim.fence, decision, seconds, claim.kind)])
    return attempts.finish_jobs([Ended(claim.fence, decision, seconds, claim.kind)])
