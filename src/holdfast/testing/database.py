"""A database that a test may fill and break: a fresh schema, dropped at the end."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import asyncpg

from holdfast.errors import InputInvalid
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.store.sqlfile import rendered


class ThrowawayDatabase:
    """A migrated schema of its own on the server at *dsn*, dropped at the end of ``async with``.

    *options* go to `DatabaseConfig`.  Many of them live side by side on one server without seeing
    each other.  Give *schema* where the application's own SQL names it, in a database of the test's own;
    raises `InputInvalid` where it exists.
    """

    def __init__(self, dsn: str, *, schema: str | None = None, **options: Any) -> None:
        self.config = DatabaseConfig(dsn=dsn, schema=schema or f"test_{secrets.token_hex(6)}", **options)
        self.database = Database(self.config)
        self._stack = AsyncExitStack()

    @property
    def dsn(self) -> str:
        """The address of the server."""
        return self.config.dsn

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return self.config.schema

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await self.database.open()
            undo.push_async_callback(self.database.close)
            await self._create()
            undo.push_async_callback(migrate.drop, self.database, None)
            await migrate.migrate(self.database)
            self._stack = undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _create(self) -> None:
        async with self.database.connection() as connection:
            try:
                await connection.execute(f'create schema "{self.schema}"')
            except asyncpg.DuplicateSchemaError:
                # It would be dropped at the end, with whatever is in it.
                msg = f"schema {self.schema!r} is there already: a throw-away database takes only a new one"
                raise InputInvalid(msg) from None

    async def fetch(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run SQL written against schema ``holdfast`` on this schema; answers its rows."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(rendered(text, self.schema), *parameters)
        return [tuple(row) for row in rows]

    async def value(self, text: str, *parameters: Any) -> Any:
        """Run SQL like `fetch`; answers the first column of the first row, or None."""
        rows = await self.fetch(text, *parameters)
        return rows[0][0] if rows else None
