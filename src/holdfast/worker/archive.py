"""Reads for runs: what they remember, and the signals that have come; for many runs in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store import signals, steps
from holdfast.store.convoy import Convoy
from holdfast.store.database import Database
from holdfast.store.signals import Taken, Waiter
from holdfast.store.steps import Memory

# What a run remembers may be large: so many of them travel together, and so many that look for a signal.
MOST_MEMORIES = 50
MOST_WAITERS = 200
LANES = 2


class Archive:
    """Answers each run as soon as a connection is free; what is asked meanwhile is asked together."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memories = Convoy(self._load_memories, most=MOST_MEMORIES, lanes=LANES)
        self._signals = Convoy(self._take_signals, most=MOST_WAITERS, lanes=LANES)

    async def load(self, run_id: int) -> Memory | None:
        """Return what a run remembers; None where it has ended."""
        return await self._memories.ask(run_id)

    async def take_signal(self, waiter: Waiter) -> Taken | None:
        """Give a place its signal; None: the lease was lost."""
        return await self._signals.ask(waiter)

    async def _load_memories(self, run_ids: Sequence[int]) -> Sequence[Memory | None]:
        return await self._database.run(steps.load_steps(run_ids))

    async def _take_signals(self, waiters: Sequence[Waiter]) -> Sequence[Taken | None]:
        return await self._database.run(signals.take_signals(waiters))
