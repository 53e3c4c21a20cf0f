"""Keeps a claim while an engine works on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.engine.claims import Claim
from holdfast.engine.interfaces import RunQueue
from holdfast.errors import DatabaseRefused, DatabaseUnavailable, LeaseLost
from holdfast.model.worker import Renewal


class Keeper:
    """Renews one claim; *wishes* is what the last renewal has said."""

    def __init__(self, queue: RunQueue, claim: Claim, every: float) -> None:
        self._queue, self._claim, self._every = queue, claim, every
        self.wishes = Renewal()
        self.lost: LeaseLost | None = None

    async def begin(self) -> None:
        """Renew for the first time; raises `LeaseLost`."""
        self.wishes = await self._queue.renew(self._claim)

    async def run(self, work: asyncio.Task[object]) -> None:
        """Renew until the lease is lost; then stop *work*."""
        while True:
            await asyncio.sleep(self._every)
            try:
                self.wishes = await self._queue.renew(self._claim)
            except (DatabaseUnavailable, DatabaseRefused):
                # The lease may outlast this, be it a lock of somebody's; if not, the next write is refused.
                continue
            except LeaseLost as lost:
                self.lost = lost
                work.cancel()
                return


@asynccontextmanager
async def keeping(queue: RunQueue, claim: Claim, *, every: float = 10.0) -> AsyncIterator[Keeper]:
    """Renew *claim* at once and *every* so many seconds while the block runs.

    Give a third of the lease.  Where the lease is lost, the block is cancelled, and `LeaseLost` is raised.
    The renewals share the block's event loop: steps that block it belong in a thread.
    """
    keeper = Keeper(queue, claim, every)
    await keeper.begin()
    work = asyncio.current_task()
    assert work is not None  # noqa: S101 - a coroutine that runs has a task
    renewing = asyncio.create_task(keeper.run(work), name=f"holdfast keeper of run {claim.run_id}")
    try:
        yield keeper
    except asyncio.CancelledError:
        if keeper.lost is None or work.uncancel() > 0:
            raise
        raise keeper.lost from None
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
