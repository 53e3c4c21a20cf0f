"""What stands behind the `Job` of a handler: its wishes, carried to the database and fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast.app.answers import checkpoint_state, checkpoint_text
from holdfast.app.job import Job, Transaction
from holdfast.errors import LeaseLost
from holdfast.store import checkpoints
from holdfast.store.database import Database
from holdfast.store.sessions import Sessions
from holdfast.store.sync_sessions import SyncSessions
from holdfast.worker.bundles import Bundles
from holdfast.worker.journal import Journal
from holdfast.worker.running import Running
from holdfast.worker.transaction import Beside, LoopTransaction, SyncTransaction


class AttemptPort:
    """Carries the wishes of one attempt.

    On the worker's loop it answers with an awaitable, for an async handler and for a middleware around
    whatever handler; anywhere else it waits for the loop and answers with the value.  *sessions* and
    *sync_sessions* are for handlers' own transactions: apart from the worker's, which a handler must not use
    up.
    """

    def __init__(
        self,
        running: Running,
        *,
        database: Database,
        bundles: Bundles,
        sessions: Sessions,
        sync_sessions: SyncSessions,
        journal: Journal,
    ) -> None:
        self._running, self._database, self._journal = running, database, journal
        self._bundles = bundles
        self._sessions, self._sync_sessions = sessions, sync_sessions
        self._loop = asyncio.get_running_loop()

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _carried(self, wish: Coroutine[Any, Any, Any]) -> Any:
        if self._is_on_loop():
            return wish
        return asyncio.run_coroutine_threadsafe(wish, self._loop).result()

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress."""
        self._journal.progress(self._running.fence, fraction, note)

    def log(self, level: int, line: str) -> None:
        """Keep a line of the log."""
        self._journal.log(self._running.fence, level, line)

    def save_checkpoint(self, state: Any, version: int) -> Any:
        """Save the state to go on from."""
        return self._carried(self.save(checkpoint_text(state), version))

    async def save(self, text: str, version: int) -> None:
        """Save a checkpoint that is JSON text already."""
        fence = self._running.fence
        await self._bundles.untie([fence])
        if not await self._database.run(checkpoints.save_checkpoint(fence, version, text)):
            raise LeaseLost(*fence)

    def load_checkpoint(self, version: int) -> Any:
        """Load the saved state, or None."""
        return self._carried(self.load(version))

    async def load(self, version: int) -> Any:
        """Load the saved state, or None, on the loop."""
        job_id = self._running.fence.job_id
        saved = await self._database.run(checkpoints.load_checkpoint(job_id))
        return None if saved is None else checkpoint_state(job_id, saved, version)

    def delete_checkpoint(self) -> Any:
        """Forget the saved state."""
        return self._carried(self.delete())

    async def delete(self) -> None:
        """Forget the saved state, on the loop."""
        fence = self._running.fence
        await self._bundles.untie([fence])
        if await self._database.run(checkpoints.delete_checkpoint(fence)) is None:
            raise LeaseLost(*fence)

    def transaction(self, job: Job) -> Transaction:
        """Begin a transaction that ends with the job's completion."""
        if self._is_on_loop():
            return LoopTransaction(
                job, self._running, self._sessions, open_up=self.open_up, settle=self.settle
            )
        worker = Beside(
            self._running.began,
            lambda: self._carried(self.open_up()) if self._running.claimed.tie is not None else None,
            lambda: self._carried(self.settle()),
            self._running.end,
        )
        return SyncTransaction(job, worker, self._sync_sessions)

    async def open_up(self) -> None:
        """Give the attempt a row of its own: a transaction sees it only if it was there when that began.

        What the transaction tells of it must not overlap with one of its key that is written meanwhile.
        """
        await self._running.wait_for_turn()
        await self._bundles.untie([self._running.fence])

    async def settle(self) -> None:
        """Write what was logged so far; from now on a lease that is gone may be the attempt's own doing."""
        if self._running.permit_recorded is not None:
            # What ends here must not be recorded, nor its permit be free, before whoever handed that on.
            await asyncio.wait({self._running.permit_recorded})
        self._running.begin_end()
        written = self._journal.settle([self._running.fence])
        if written is not None:
            await written
