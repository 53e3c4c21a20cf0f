"""Runs statements on connections that belong to the caller, inside the caller's transaction."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg

from holdfast.store.sqlfile import rendered
from holdfast.store.statement import Statement

T = TypeVar("T")


def run_on_psycopg(connection: psycopg.Connection[Any], statement: Statement[T], schema: str) -> T:
    """Run *statement* on a psycopg connection; driver errors pass through."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(rendered(statement.text, schema).encode(), statement.parameters)
        return statement.reader(cursor.fetchall())


async def run_on_psycopg_async(
    connection: psycopg.AsyncConnection[Any], statement: Statement[T], schema: str
) -> T:
    """Run *statement* on an async psycopg connection; driver errors pass through."""
    async with psycopg.AsyncRawCursor(connection) as cursor:
        await cursor.execute(rendered(statement.text, schema).encode(), statement.parameters)
        return statement.reader(await cursor.fetchall())


async def run_foreign(connection: Any, statement: Statement[T], schema: str) -> T:
    """Run *statement* on whatever connection the caller has; raises Holdfast's own errors."""
    raise NotImplementedError
