"""A database as somebody on the network sees it: what they do is audited with their address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from holdfast.store import audit
from holdfast.store.database import Connection, Database, begun_anew, run_on
from holdfast.store.statement import Statement

T = TypeVar("T")


class AddressedDatabase(Database):
    """The pool of *database*, whose every transaction knows the network *address* it is made for.

    What writes to the audit log in one of them notes the address; no statement has to remember it.
    """

    def __init__(self, database: Database, address: str) -> None:
        super().__init__(database.config)
        self._inner, self._caller = database, address

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection from the pool, outside of a transaction and so without the address."""
        async with self._inner.connection() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction that knows the address."""
        async with self._inner.transaction() as connection:
            await run_on(connection, audit.note_address(self._caller), self.schema)
            yield connection

    async def run(self, statement: Statement[T], connection: Connection | None = None) -> T:
        """Run *statement* on *connection*, or in a transaction of its own, which `begun_anew` may repeat."""
        if connection is not None:
            return await run_on(connection, statement, self.schema)
        return await begun_anew(lambda: self._alone(statement))

    async def _alone(self, statement: Statement[T]) -> T:
        async with self.transaction() as own:
            return await run_on(own, statement, self.schema)
