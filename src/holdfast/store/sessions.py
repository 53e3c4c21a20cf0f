"""Connections for async handlers' own transactions, apart from those that the worker lives on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg

from holdfast.store.address import shown_address
from holdfast.store.database import KEEPALIVES, Connection, DatabaseConfig, own_errors

LONGEST_CLOSE = 5.0

# As `discard all`, which must stand alone, but for plans and what is prepared, on which asyncpg counts.
RESET = """
select pg_advisory_unlock_all(); close all; unlisten *; set session authorization default; reset role;
reset all; discard temp; discard sequences"""


class Sessions:
    """A pool of up to *most* plain connections, opened when a handler first asks.

    A handler may keep one for as long as its timeout allows and do what it likes on it, so it must not be
    one of those that claims, reports and checkpoints need, nor carry their planner settings; the session is
    reset before another handler gets it.  What a handler's own SQL raises passes through as it is.
    """

    def __init__(self, config: DatabaseConfig, most: int) -> None:
        self.config, self._most = config, most
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction that commits when the block ends well."""
        pool = await self._open()
        with own_errors(self.config.schema, shown_address(self.config.dsn)):
            lent = await pool.acquire()
        try:
            async with lent.transaction():
                # The proxy that the pool lends has every method of a connection.
                yield cast(Connection, lent)
        finally:
            await pool.release(lent)

    async def close(self) -> None:
        """Close what is open, waiting at most 5 s for handlers that still use it."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(LONGEST_CLOSE):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def _open(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._pool is None:
                with own_errors(self.config.schema):
                    self._pool = await asyncpg.create_pool(**self._options(), min_size=0, max_size=self._most)
            return self._pool

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"dsn": self.config.dsn, "timeout": self.config.connect_timeout}
        if self.config.pgbouncer:
            return options | {"statement_cache_size": 0}
        settings = {"application_name": f"{self.config.application_name} job"} | KEEPALIVES
        return options | {"server_settings": settings, "reset": _reset}


async def _reset(connection: Connection) -> None:
    await connection.execute(RESET)
