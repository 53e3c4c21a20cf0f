"""The tests for any implementation of the engine's interfaces, run on the one that is on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from holdfast.engine import EngineConfig, EngineStore
from holdfast.testing import Clock, EngineConformance, ThrowawayDatabase
from holdfast.testing.engine import KIND


class PostgresGround:
    """Engines on a throw-away database."""

    def __init__(self, db: ThrowawayDatabase, stack: AsyncExitStack) -> None:
        self._db, self._stack = db, stack

    async def worker(self, *, version: int = 1) -> EngineStore:
        """Another worker."""
        config = EngineConfig(kinds=(KIND,), version=version)
        return await self._stack.enter_async_context(
            EngineStore(self._db.dsn, config, schema=self._db.schema, pool_size=2)
        )

    async def lapse(self, engine: Any) -> None:
        """The lease of a worker has run out."""
        await self._db.fetch(
            "update holdfast.workers set ttl = '0', expires_at = '-infinity' where id = $1",
            engine.queue.standing.worker_id,
        )

    async def advance(self, seconds: float) -> None:
        """Time passes in this schema."""
        await Clock(self._db).advance(seconds)

    async def state(self, run_id: int) -> str:
        """Where a run stands."""
        return str(await self._db.value("select state from holdfast.job_overview where id = $1", run_id))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection in a transaction."""
        return self._db.database.transaction()


class TestPostgres(EngineConformance):
    """The implementation that is shipped."""

    @pytest.fixture
    async def ground(self, db: ThrowawayDatabase) -> AsyncIterator[PostgresGround]:
        """Workers that are closed at the end."""
        async with AsyncExitStack() as stack:
            yield PostgresGround(db, stack)
