"""Signals in PostgreSQL, the same that Holdfast's own runs get."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app.signals import signal_statement
from holdfast.engine.claims import Claim
from holdfast.engine.interfaces import Signal
from holdfast.errors import LeaseLost
from holdfast.model.step import MAIN
from holdfast.store import signals
from holdfast.store.database import Database
from holdfast.store.signals import Waiter


class PostgresSignals:
    """Rows of ``signals``; one that is taken is recorded at its place in the statement that takes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, run_id: int, name: str, payload: Any = None, *, key: str | None = None) -> int:
        """Send a signal; answers its id.  Raises `RunEnded`, `PayloadTooLarge`."""
        return await self._database.run(signal_statement(run_id, name, payload, key))

    async def take(self, claim: Claim, name: str, *, place: int, branch: str = MAIN) -> Signal | None:
        """Give the oldest signal to a place of a held run, or None; raises `LeaseLost`."""
        waiter = Waiter(claim.fence, branch, place, name)
        [taken] = await self._database.run(signals.take_signals([waiter]))
        if taken is None:
            raise LeaseLost(claim.run_id, claim.attempt)
        return None if taken.text is None else Signal(msgspec.json.decode(taken.text)[0])
