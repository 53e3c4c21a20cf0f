"""Reads for runs: what they remember, and the signals that have come; for many runs in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store import signals, steps
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database
from holdfast.store.signals import Taken, Waiter
from holdfast.store.steps import Memory

# What a run remembers may be large: a batch is of so many runs, or of so many that look for a signal.
MOST_MEMORIES = 50
MOST_WAITERS = 200
MAX_IN_FLIGHT = 2


class RunReader:
    """Answers each run as soon as a connection is free; what is asked meanwhile is asked together."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memories = Batcher(self._load_memories, max_items=MOST_MEMORIES, max_in_flight=MAX_IN_FLIGHT)
        self._signals = Batcher(self._take_signals, max_items=MOST_WAITERS, max_in_flight=MAX_IN_FLIGHT)

    async def load(self, run_id: int) -> Memory | None:
        """Return what a run remembers; None where it has ended."""
        return await self._memories.submit(run_id)

    async def take_signal(self, waiter: Waiter) -> Taken | None:
        """Give a place its signal; None: the lease was lost."""
        return await self._signals.submit(waiter)

    async def _load_memories(self, run_ids: Sequence[int]) -> Sequence[Memory | None]:
        return await self._database.run(steps.load_steps(run_ids))

    async def _take_signals(self, waiters: Sequence[Waiter]) -> Sequence[Taken | None]:
        return await self._database.run(signals.take_signals(waiters))
