"""What stands behind the `Job` of a handler on the loop or in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from holdfast.app.job import Job, Transaction
from holdfast.app.signature import json_text
from holdfast.errors import InputInvalid, LeaseLost, PayloadTooLarge, StateConflict
from holdfast.store import checkpoints
from holdfast.store.database import Database
from holdfast.worker.journal import Journal
from holdfast.worker.running import Running
from holdfast.worker.transaction import LoopTransaction, ThreadTransaction

MAX_CHECKPOINT_BYTES = 1024 * 1024


class AttemptPort:
    """Carries the wishes of one handler to the database, fenced.

    In a thread it waits for the loop and answers with the value; on the loop it answers with a coroutine.
    """

    def __init__(
        self, running: Running, database: Database, journal: Journal, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._running, self._database, self._journal, self._loop = running, database, journal, loop

    def _carried(self, wish: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
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
        text = json_text(state, lambda problem: InputInvalid(f"the checkpoint cannot be stored: {problem}"))
        if (size := len(text.encode())) > MAX_CHECKPOINT_BYTES:
            raise PayloadTooLarge("checkpoint", size=size, limit=MAX_CHECKPOINT_BYTES)
        return self._carried(self._save(text, version))

    async def _save(self, text: str, version: int) -> None:
        fence = self._running.fence
        if not await self._database.run(checkpoints.save_checkpoint(fence, version, text)):
            raise LeaseLost(fence.job_id, fence.attempt)

    def load_checkpoint(self, version: int) -> Any:
        """Load the saved state, or None."""
        return self._carried(self._load(version))

    async def _load(self, version: int) -> Any:
        job_id = self._running.fence.job_id
        saved = await self._database.run(checkpoints.load_checkpoint(job_id))
        if saved is None:
            return None
        if saved.version > version:
            state = f"at checkpoint version {saved.version}, newer than this handler's {version}"
            raise StateConflict(job_id, action="resumed", state=state)
        return msgspec.json.decode(saved.data)

    def delete_checkpoint(self) -> Any:
        """Forget the saved state."""
        return self._carried(self._delete())

    async def _delete(self) -> None:
        fence = self._running.fence
        if await self._database.run(checkpoints.delete_checkpoint(fence)) is None:
            raise LeaseLost(fence.job_id, fence.attempt)

    def transaction(self, job: Job) -> Transaction:
        """Begin a transaction that ends with the job's completion."""
        if self._loop is None:
            return LoopTransaction(job, self._running, self._database)
        return ThreadTransaction(job, self._running, self._database.config)
