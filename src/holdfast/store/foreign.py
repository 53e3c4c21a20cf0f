"""Runs statements on connections that belong to the caller, inside the caller's transaction.

A connection is recognised by its type, and a library that the program has not loaded is not loaded here
either.  What the statement needs is brought along (row factory, casts, parameter style), so that the
settings of the caller's connection do not matter; what the caller's transaction does with it afterwards
is the caller's affair.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias, TypeVar

import asyncpg
import psycopg
from psycopg.rows import tuple_row

from holdfast.errors import ConnectionUnsupported
from holdfast.store import failures
from holdfast.store.sqlfile import pyformat, rendered
from holdfast.store.statement import Row, Statement

T = TypeVar("T")

Rows: TypeAlias = Sequence[Row]
Run: TypeAlias = Callable[[Any, Statement[Any], str], Rows]
AsyncRun: TypeAlias = Callable[[Any, Statement[Any], str], Awaitable[Rows]]
TypeName: TypeAlias = tuple[str, str]


async def run_foreign(connection: Any, statement: Statement[T], schema: str) -> T:
    """Run *statement* on an async connection of the caller; raises Holdfast's own errors.

    Raises `ConnectionUnsupported` for anything that is not such a connection.
    """
    run = _found(connection, ASYNC) or _refuse(connection, "Client", ASYNC_TAKES, _found(connection, SYNC))
    with foreign_errors(schema):
        return statement.reader(_with_text(await run(connection, statement, schema)))


def run_foreign_sync(connection: Any, statement: Statement[T], schema: str) -> T:
    """Run *statement* on a sync connection of the caller; the twin of `run_foreign`."""
    run = _found(connection, SYNC) or _refuse(connection, "SyncClient", SYNC_TAKES, _found(connection, ASYNC))
    with foreign_errors(schema):
        return statement.reader(_with_text(run(connection, statement, schema)))


def run_on_psycopg(connection: psycopg.Connection[Any], statement: Statement[T], schema: str) -> T:
    """Run *statement* on a psycopg connection; driver errors pass through."""
    return statement.reader(_psycopg(connection, statement, schema))


def _with_text(rows: Rows) -> Rows:
    """Give text where psycopg gives bytes, for want of an encoding: with ``client_encoding = SQL_ASCII``.

    What runs on a caller's connection answers no bytes of its own.
    """
    return [[part.decode() if isinstance(part, bytes) else part for part in row] for row in rows]


# ---------------------------------------------------------------------------------------------
# Async connections


async def _asyncpg(connection: Any, statement: Statement[Any], schema: str) -> Rows:
    rows: Rows = await connection.fetch(rendered(statement.text, schema), *statement.parameters)
    return rows


async def _psycopg_async(
    connection: psycopg.AsyncConnection[Any], statement: Statement[Any], schema: str
) -> Rows:
    async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(rendered(statement.text, schema).encode(), statement.parameters)
        return await cursor.fetchall()


async def _sqlalchemy_async(connection: Any, statement: Statement[Any], schema: str) -> Rows:
    result = await connection.exec_driver_sql(*_for_sqlalchemy(connection, statement, schema))
    rows: Rows = result.all()
    return rows


async def _sqlalchemy_async_session(session: Any, statement: Statement[Any], schema: str) -> Rows:
    return await _sqlalchemy_async(await session.connection(), statement, schema)


# ---------------------------------------------------------------------------------------------
# Sync connections


def _psycopg(connection: psycopg.Connection[Any], statement: Statement[Any], schema: str) -> Rows:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        # Times in binary form: psycopg reads no other DateStyle than ISO, and a role may have any.
        cursor.execute(rendered(statement.text, schema).encode(), statement.parameters, binary=True)
        return cursor.fetchall()


def _sqlalchemy(connection: Any, statement: Statement[Any], schema: str) -> Rows:
    rows: Rows = connection.exec_driver_sql(*_for_sqlalchemy(connection, statement, schema)).all()
    return rows


def _sqlalchemy_session(session: Any, statement: Statement[Any], schema: str) -> Rows:
    return _sqlalchemy(session.connection(), statement, schema)


def _django(connection: Any, statement: Statement[Any], schema: str) -> Rows:
    vendor = getattr(connection, "vendor", None)
    if vendor != "postgresql":
        raise ConnectionUnsupported(connection, f"it leads to {vendor or 'no database'}, not to PostgreSQL")
    with connection.cursor() as cursor:
        cursor.execute(pyformat(rendered(statement.text, schema)), _named(statement))
        rows: Rows = cursor.fetchall()
        return rows


# ---------------------------------------------------------------------------------------------
# Parameter styles

# SQLAlchemy hands text and parameters to these as they are; each wants them in its own style.
DOLLAR_DRIVERS = frozenset({"asyncpg"})
PYFORMAT_DRIVERS = frozenset({"psycopg", "psycopg_async", "psycopg2"})


def _for_sqlalchemy(connection: Any, statement: Statement[Any], schema: str) -> tuple[str, Any]:
    dialect = connection.dialect
    text = rendered(statement.text, schema)
    if dialect.name == "postgresql" and dialect.driver in DOLLAR_DRIVERS:
        return text, statement.parameters
    if dialect.name == "postgresql" and dialect.driver in PYFORMAT_DRIVERS:
        return pyformat(text), _named(statement)
    drivers = ", ".join(f"postgresql+{driver}" for driver in ("psycopg", "psycopg2", "asyncpg"))
    raise ConnectionUnsupported(connection, f"its engine is {dialect.name}+{dialect.driver}: use {drivers}")


def _named(statement: Statement[Any]) -> dict[str, Any]:
    return {f"p{n}": value for n, value in enumerate(statement.parameters, start=1)}


# ---------------------------------------------------------------------------------------------
# Recognition

ASYNC: Mapping[TypeName, AsyncRun] = {
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg.pool", "PoolConnectionProxy"): _asyncpg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("sqlalchemy.ext.asyncio", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy.ext.asyncio", "AsyncSession"): _sqlalchemy_async_session,
    ("sqlalchemy.ext.asyncio", "async_scoped_session"): _sqlalchemy_async_session,
}
ASYNC_TAKES = (
    "an asyncpg connection, psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession"
)

SYNC: Mapping[TypeName, Run] = {
    ("psycopg", "Connection"): _psycopg,
    ("sqlalchemy.engine", "Connection"): _sqlalchemy,
    ("sqlalchemy.orm", "Session"): _sqlalchemy_session,
    ("sqlalchemy.orm", "scoped_session"): _sqlalchemy_session,
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): _django,
    # What `from django.db import connection` gives.
    ("django.utils.connection", "ConnectionProxy"): _django,
}
SYNC_TAKES = "psycopg's Connection, SQLAlchemy's Connection or Session, or Django's database connection"


def _found(connection: Any, ways: Mapping[TypeName, T]) -> T | None:
    for (module, name), way in ways.items():
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(connection, known):
            return way
    return None


def _refuse(connection: Any, client: str, takes: str, other: object) -> NoReturn:
    if other is not None:
        colour, right = ("a sync", "SyncClient") if client == "Client" else ("an async", "Client")
        problem = f"it is {colour} connection: enqueue on it with holdfast.{right}"
    else:
        problem = f"{client} takes {takes}; not a pool, an engine or a cursor"
    raise ConnectionUnsupported(connection, problem)


# ---------------------------------------------------------------------------------------------
# Errors


@contextmanager
def foreign_errors(schema: str) -> Iterator[None]:
    """Raise Holdfast's errors for what any driver, SQLAlchemy or Django raises inside.

    A deadlock or a serialisation failure passes as it is: whoever begins transactions that may end so has
    a retry around them, and it waits for the driver's own error.
    """
    try:
        yield
    except _driver_errors() as error:
        innermost = _innermost(error)
        meaning = failures.translated(innermost, schema)
        if meaning is None or failures.asks_for_another_transaction(innermost):
            raise
        raise meaning from error


def _driver_errors() -> tuple[type[BaseException], ...]:
    known = (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        psycopg.Error,
        OSError,
        EOFError,
        UnicodeEncodeError,
    )
    wrappers = (("sqlalchemy.exc", "DBAPIError"), ("django.db", "Error"))
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in wrappers)
    return (*known, *(error for error in loaded if error is not None))


def _innermost(error: BaseException) -> BaseException:
    """Return what the driver itself raised: SQLAlchemy and Django wrap it, the asyncpg dialect twice."""
    while (inner := getattr(error, "orig", None) or error.__cause__) is not None:
        error = inner
    return error
