"""Checkpoints in PostgreSQL: one row for each run."""

from __future__ import annotations

from typing import Any

from holdfast.app.answers import checkpoint_state, checkpoint_text
from holdfast.engine.claims import Claim
from holdfast.engine.interfaces import SavedState
from holdfast.errors import LeaseLost
from holdfast.store import checkpoints
from holdfast.store.database import Database


class PostgresCheckpointer:
    """Rows of ``checkpoints``; *version* is that of the shape in which this engine saves its states."""

    def __init__(self, database: Database, version: int) -> None:
        self._database, self._version = database, version

    async def save(self, claim: Claim, state: Any) -> None:
        """Replace the state of a held run; raises `LeaseLost`, `InputInvalid`, `PayloadTooLarge`."""
        statement = checkpoints.save_checkpoint(claim.fence, self._version, checkpoint_text(state))
        if not await self._database.run(statement):
            raise LeaseLost(claim.run_id, claim.attempt)

    async def load(self, run_id: int) -> SavedState | None:
        """Return what was saved, whoever asks, or None; raises `StateConflict` for a newer version."""
        saved = await self._database.run(checkpoints.load_checkpoint(run_id))
        if saved is None:
            return None
        state = checkpoint_state(run_id, saved, self._version)
        return SavedState(state, saved.version, saved.attempt, saved.saved_at)

    async def delete(self, claim: Claim) -> bool:
        """Forget the state of a held run; False where there was none.  Raises `LeaseLost`."""
        gone = await self._database.run(checkpoints.delete_checkpoint(claim.fence))
        if gone is None:
            raise LeaseLost(claim.run_id, claim.attempt)
        return gone
