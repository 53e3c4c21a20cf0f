"""Runs a test's jobs to their end, one at a time, in the caller's event loop.

Everything is real: the claim, the handlers' executors, the decisions, the fenced writes, the staging.
Only the timing is taken out: there is one slot, and each attempt is written before the next is claimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from holdfast.app.registry import App
from holdfast.errors import DrainEndless, JobFailed
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend, Transition
from holdfast.runtime.events import Events
from holdfast.store import leader, workers
from holdfast.store.heads import next_due, queue_heads
from holdfast.store.steps import seconds_until
from holdfast.testing.clock import Clock
from holdfast.testing.database import ThrowawayDatabase
from holdfast.testing.report import DrainedAttempt, DrainReport
from holdfast.worker.config import WorkerConfig
from holdfast.worker.running import Running
from holdfast.worker.slots import Served
from holdfast.worker.worker import Worker

# Longer than any test moves the clock between two jobs, so that the drain's lease never runs out.
TTL = 10 * 365 * 24 * 3600.0
DUTY = 60.0
BATCH = 1000


async def drain(
    app: App,
    db: ThrowawayDatabase,
    *,
    queues: Sequence[str] | None = None,
    include_scheduled: bool = False,
    stop_on_error: bool = False,
    limit: int = 1000,
) -> DrainReport:
    """Run jobs until none is available, and report what every attempt came to.

    The order is strict: the best priority of all *queues* first (None: of every queue), then the oldest.
    Due jobs are staged.  With *include_scheduled* the schema's clock moves on to the next due one of them
    whenever nothing is available; afterwards it runs again, unless it was stopped before.  With
    *stop_on_error* the first error of a handler is raised, after it was written.
    Raises `DrainEndless` when jobs are still due after *limit* attempts.
    """
    async with _opened(app, db) as worker:
        crew = _Crew(worker, db, _Wanted(tuple(app.handlers), queues, include_scheduled))
        attempts: list[DrainedAttempt] = []
        while await crew.claim():
            if len(attempts) >= limit:
                kind, times = Counter(one.kind for one in attempts).most_common(1)[0]
                raise DrainEndless(limit=limit, kind=kind, times=times)
            served = await worker.slots.serve()
            await worker.reporter.flush()
            attempts.append(_drained(served))
            if stop_on_error:
                _raise_error(served)
    return DrainReport(tuple(attempts))


@asynccontextmanager
async def _opened(app: App, db: ThrowawayDatabase) -> AsyncIterator[Worker]:
    """Register a worker that claims by hand; leave nothing of it behind."""
    queues = app.queues() or (DEFAULT_QUEUE,)
    config = WorkerConfig(
        database=db.config, queues=queues, slots=1, ttl=TTL, prefetch=0, listen=False, name="drain"
    )
    clock = Clock(db)
    was_stopped = await clock.is_stopped()
    worker = Worker(app, db.database, config, Events())
    await worker.open()
    try:
        yield worker
    finally:
        await worker.stop(0.0)
        if not was_stopped and await clock.is_stopped():
            await clock.release()


@dataclass(frozen=True, slots=True)
class _Wanted:
    kinds: tuple[str, ...]
    queues: Sequence[str] | None
    include_scheduled: bool


class _Crew:
    """Claims for one slot and does the leader's staging."""

    def __init__(self, worker: Worker, db: ThrowawayDatabase, wanted: _Wanted) -> None:
        self._worker, self._db, self._wanted = worker, db, wanted

    async def claim(self) -> bool:
        """Claim the best job into the worker's buffer; False: nothing is left to run."""
        wanted = self._wanted
        while True:
            leads = await self._stage()
            if await self._claim_available():
                return True
            if not leads or not wanted.include_scheduled:
                return False
            next_in = await self._db.database.run(next_due(wanted.kinds, wanted.queues))
            if next_in is None:
                return False
            await self._move_on(next_in)

    async def _claim_available(self) -> bool:
        for queue in await self._db.database.run(queue_heads(self._wanted.kinds)):
            if self._wanted.queues is None or queue in self._wanted.queues:
                # A pause or a limit may have changed between two jobs.
                self._worker.claimer.reload()
                if await self._worker.claimer.intake.claim((queue,), free=1, wanted=1):
                    return True
        return False

    async def _stage(self) -> bool:
        """Stage all that is due; False: somebody else leads, and does so."""
        database = self._db.database
        term = await database.run(leader.lead("drain", None, DUTY))
        if term is None:
            return False
        while (await database.run(leader.stage_jobs(term, BATCH))).count == BATCH:
            pass
        await database.run(leader.resign("drain", term))
        return True

    async def _move_on(self, next_in: float) -> None:
        """Move the clock to the next due job, however far that is."""
        clock = Clock(self._db)
        # A millisecond more than needed: a due time in seconds is rounded.
        await clock.set(await clock.now() + timedelta(seconds=next_in + 0.001))
        await self._db.database.run(workers.renew_worker(self._worker.worker_id))


def _drained(served: Served) -> DrainedAttempt:
    running, decision = served
    outcome, result, reason, error, delay = _told(running, decision)
    claimed = running.claimed
    return DrainedAttempt(
        job_id=claimed.id,
        attempt=claimed.attempt,
        kind=claimed.kind,
        queue=claimed.queue,
        outcome=outcome,
        result=result,
        reason=reason,
        error=error,
        delay=delay,
    )


def _told(
    running: Running, decision: Transition | None
) -> tuple[Outcome, object, str | None, str | None, float | None]:
    match decision:
        case Complete(result):
            return Outcome.COMPLETED, result and msgspec.json.decode(result), None, None, None
        case Fail(error, reason):
            return Outcome.FAILED, None, reason, error, None
        case Stop(reason):
            return Outcome.CANCELLED, None, reason, None, None
        case PutBack(outcome, delay, _, reason, error):
            return outcome, None, reason, error, delay
        case Suspend(reason, due=due):
            return Outcome.SUSPENDED, None, reason, None, seconds_until(due)
    if running.is_settled:
        # Its own transaction completed it; the result was given there.
        return Outcome.COMPLETED, running.job and running.job.result, None, None, None
    return Outcome.LOST, None, "the lease was lost", None, None


def _raise_error(served: Served) -> None:
    running, decision = served
    if running.error is not None and not running.is_settled:
        raise running.error
    if isinstance(decision, Fail) or (isinstance(decision, PutBack) and decision.counts):
        raise JobFailed(running.claimed.id, decision.reason)
