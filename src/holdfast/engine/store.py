"""All interfaces of an engine on one database, opened and closed together."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from holdfast.engine.checkpoints import PostgresCheckpointer
from holdfast.engine.config import EngineConfig
from holdfast.engine.pen import Pen
from holdfast.engine.progress import PostgresActivityLog, PostgresProgress
from holdfast.engine.queue import PostgresQueue
from holdfast.engine.signals import PostgresSignals
from holdfast.errors import HoldfastError
from holdfast.runtime.events import Events
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.workflow.redaction import Redactions


class EngineStore:
    """PostgreSQL as an engine needs it: ``async with EngineStore(dsn, EngineConfig(kinds=["order"]))``.

    It stands on Holdfast's own tables and statements: its runs are jobs, and whatever shows, pauses, cancels
    or limits jobs does so with them.  *events* hears ``notes.dropped``.
    """

    def __init__(
        self,
        dsn: str,
        config: EngineConfig,
        *,
        schema: str = "holdfast",
        pool_size: int = 5,
        events: Events | None = None,
    ) -> None:
        name = f"holdfast {config.name}"
        self._database = Database(
            DatabaseConfig(dsn=dsn, schema=schema, pool_size=pool_size, application_name=name)
        )
        self._pen = Pen(self._database, events or Events())
        redactions = Redactions(config.redactions)
        self.queue = PostgresQueue(self._database, config, self._pen.settle)
        self.checkpoints = PostgresCheckpointer(self._database, config.version)
        self.progress = PostgresProgress(self._database, self._pen, redactions)
        self.activities = PostgresActivityLog(self._database, self._pen, redactions)
        self.signals = PostgresSignals(self._database)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and check the schema; raises `DatabaseUnavailable`, `SchemaMismatch`."""
        async with AsyncExitStack() as undo:
            await self._database.open()
            undo.push_async_callback(self._database.close)
            await migrate.check(self._database)
            undo.pop_all()

    async def close(self) -> None:
        """Give back what is still held, and disconnect."""
        await self._pen.close()
        # Without a database nothing can be given back: the lease runs out by itself.
        with suppress(HoldfastError):
            await self.queue.close()
        await self._database.close()
