"""The worker row under which an engine holds its claims, and the duties that it does for others."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.engine.config import EngineConfig
from holdfast.model.worker import WorkerState
from holdfast.store import leader, workers
from holdfast.store.database import Database

# Should it die at a duty, others lead again so soon, in seconds.
LEADER_TTL = 5.0


class Standing:
    """One engine process as the database knows it.

    It is registered when it first claims, and anew when it was declared lost.
    """

    def __init__(self, database: Database, config: EngineConfig) -> None:
        self._database, self._config = database, config
        self._holder = f"{config.name}:{secrets.token_hex(6)}"
        self.worker_id: int | None = None

    async def renewed(self) -> int | None:
        """Renew the lease and return the worker's id; None where it was asked to take no more."""
        if self.worker_id is not None:
            state = await self._database.run(workers.renew_worker(self.worker_id))
            if state is WorkerState.DRAINING:
                return None
            if state is not None:
                return self.worker_id
        await self._database.run(workers.know_queues(self._config.queues))
        self.worker_id = await self._database.run(workers.register_worker(self._config.as_worker()))
        return self.worker_id

    async def end(self) -> None:
        """Leave in good order."""
        worker_id, self.worker_id = self.worker_id, None
        if worker_id is not None:
            await self._database.run(workers.end_worker(worker_id))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[int | None]:
        """Do a duty of the leader where nobody leads: gives the term, or None where somebody does."""
        patience = LEADER_TTL + leader.SILENCE
        term = await self._database.run(leader.lead(self._holder, self.worker_id, LEADER_TTL, patience))
        try:
            yield term
        finally:
            if term is not None:
                await self._database.run(leader.resign(self._holder, term))
