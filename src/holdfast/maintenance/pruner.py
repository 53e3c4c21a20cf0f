"""Deletes ended jobs that are past their retention, in batches with rests between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import partial
from typing import TypeVar

from holdfast.errors import DatabaseUnavailable
from holdfast.maintenance.duty import Duty
from holdfast.store import audit, deliveries, prune, request_keys, tokens
from holdfast.store.prune import Retention
from holdfast.store.statement import Statement

T = TypeVar("T")

SHORTEST_PAUSE = 0.02
# How long a new leader waits with its first pass, in seconds.
FIRST_REST = 10.0
# So many shapes of jobs for runners cost nothing; each runner that jobs are pinned to makes one more.
FEW_ROUTES = 500
# For so long a request may be repeated with its idempotency key, in seconds.
REPEATABLE = 86_400.0
# A statement may record an end a little before it commits; a transaction may be as late as this.
LATE = timedelta(hours=1)


class Pruner(Duty):
    """Walks over what is past its retention, by id, and deletes jobs with all that belongs to them.

    It works at most half of the time.  Where a batch takes longer than a command may, the rest of a pass goes
    on in smaller ones.  An own retention of a queue finds no index: the first pass of a term and of each day
    looks at all history, for some of it is kept for its parent; other passes look only at what has grown too
    old since.
    """

    name = "pruner"

    def begin_term(self) -> None:
        """Look at all history in the first pass."""
        self._day: date | None = None
        self._reached: dict[str, datetime] = {}

    @property
    def first_rest(self) -> float:
        """Leave what is old as it is at first: whoever has just started has jobs to see to."""
        return min(FIRST_REST, self.config.prune_rest)

    async def lead(self, term: int) -> float:
        """Make one pass."""
        self._batch = self.config.prune_batch
        completed, failed = self.config.retention_completed, self.config.retention_failed
        retentions = await self.database.run(prune.retentions(completed=completed, failed=failed))
        day = min(retention.before for retention in retentions if retention.queue is None).date()
        if self._day != day:
            self._day, self._reached = day, {}
        for retention in retentions:
            await self._prune(term, retention)
        for delete, seconds in (
            (prune.prune_logs, self.config.retention_logs),
            (prune.prune_chunks, self.config.retention_logs),
            (prune.prune_attempts, max(completed, failed)),
            (prune.prune_activities, max(completed, failed)),
            (deliveries.prune_deliveries, failed),
            (request_keys.prune_requests, REPEATABLE),
            (tokens.prune_tokens, failed),
            (audit.prune_enqueues, max(completed, failed)),
        ):
            while await self._prune_old(delete, term, seconds):
                pass
        await self.database.run(prune.prune_workers(term, max(completed, failed)))
        await self.database.run_read_committed(prune.prune_routes(term, FEW_ROUTES, self.config.prune_batch))
        return self.config.prune_rest

    async def _prune(self, term: int, retention: Retention) -> None:
        since = self._reached.get(retention.queue) if retention.queue is not None else None
        after = total = 0
        while True:
            begun = time.monotonic()
            pruned = await self._bounded(partial(prune.prune_jobs, term, retention, since=since, after=after))
            total += pruned.count
            if pruned.last_id is None or pruned.count < self._batch:
                break
            after = pruned.last_id
            await self._pause(begun)
        if total:
            self.events.emit("jobs.pruned", count=total, outcomes=retention.outcomes, queue=retention.queue)
        if retention.queue is not None:
            self._reached[retention.queue] = retention.before - LATE

    async def _prune_old(self, delete: Callable[..., Statement[int]], term: int, seconds: float) -> bool:
        begun = time.monotonic()
        deleted = await self._bounded(partial(delete, term, seconds))
        await self._pause(begun)
        return deleted == self._batch

    async def _bounded(self, delete: Callable[..., Statement[T]]) -> T:
        """Delete one batch, a smaller one where that takes longer than a command may; else it never ended."""
        while True:
            begun = time.monotonic()
            try:
                return await self.database.run(delete(limit=self._batch))
            except DatabaseUnavailable:
                if self._batch == 1:
                    raise
                self._batch //= 2
            await self._pause(begun)

    async def _pause(self, begun: float) -> None:
        await asyncio.sleep(max(SHORTEST_PAUSE, time.monotonic() - begun))
