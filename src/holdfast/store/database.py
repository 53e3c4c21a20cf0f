"""Runs statements on asyncpg: connections, transactions, and errors that say what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import asyncpg

from holdfast.errors import DatabaseRefused, DatabaseUnavailable
from holdfast.store import failures
from holdfast.store.address import checked_address, shown_address
from holdfast.store.pool import LONGEST_CLOSE, Pool
from holdfast.store.sqlfile import DEFAULT_SCHEMA, checked_schema, rendered
from holdfast.store.statement import Statement

T = TypeVar("T")

# What asyncpg lets through when a server, a network or a statement fails.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
    TimeoutError,
)

Connection: TypeAlias = "asyncpg.Connection[Any]"

# After these a statement may still be under way on the connection.
CUT_OFF = (asyncio.CancelledError, GeneratorExit, TimeoutError, DatabaseUnavailable)

# Generic plans keep the claim steady; a custom plan made on skewed statistics stalls it.  A generic plan
# lives until the next ANALYZE, so one made on empty tables must not read them from end to end.
PINNED_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}


# A machine that is gone must not keep others from a lock: the server learns of it within half a minute.
KEEPALIVES = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}

# asyncpg always speaks so.  psycopg would follow the environment or the database, whose SQL_ASCII makes bytes
# of all text that it reads, and rows of a COPY are written so in any case.
ENCODING = "UTF8"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """Where the database is and how to talk to it.

    *pgbouncer* is for a pooler, in session or transaction mode: nothing is prepared, no session setting is
    made and nobody listens.  *command_timeout* is in seconds, and so is *idle_timeout*: for so long a
    transaction of ours may wait for this process, before PostgreSQL ends it; with 0 as long as it likes.
    """

    dsn: str
    schema: str = DEFAULT_SCHEMA
    pool_size: int = 5
    pgbouncer: bool = False
    application_name: str = "holdfast"
    command_timeout: float = 60.0
    idle_timeout: float = 10.0
    connect_timeout: float = 10.0

    def __post_init__(self) -> None:
        checked_schema(self.schema)
        checked_address(self.dsn)

    def connect_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `asyncpg.connect`."""
        options: dict[str, Any] = {
            "dsn": self.dsn,
            "timeout": self.connect_timeout,
            "command_timeout": self.command_timeout,
        }
        if self.pgbouncer:
            return options | {"statement_cache_size": 0}
        return options | {"server_settings": self.session_settings()}

    def session_settings(self) -> dict[str, str]:
        """Return what every session is set to; nothing behind a pooler, which shares its sessions out."""
        if self.pgbouncer:
            return {}
        return (
            PINNED_PLANS
            | {
                "application_name": self.application_name,
                "default_transaction_isolation": "read committed",
                # Nor must a process that is frozen, or whose loop stands still.
                "idle_in_transaction_session_timeout": f"{self.idle_timeout * 1000:.0f}ms",
                "jit": "off",
                "timezone": "UTC",
            }
            | KEEPALIVES
        )


@contextmanager
def own_errors(schema: str, address: str | None = None) -> Iterator[None]:
    """Raise Holdfast's errors for what a driver raises inside; *address* is what it connects to."""
    try:
        yield
    except (*DRIVER_ERRORS, *failures.ODD_HOST) as error:
        meaning = failures.translated(error, schema, address)
        if meaning is None:
            raise
        raise meaning from error


async def run_on(connection: Connection, statement: Statement[T], schema: str) -> T:
    """Run *statement* on an asyncpg connection, inside whatever transaction it is in."""
    try:
        rows = await connection.fetch(rendered(statement.text, schema), *statement.parameters)
    except DRIVER_ERRORS:
        # Not around the statement: what goes well, as nearly all do, need not pay for it.
        with own_errors(schema):
            raise
    return statement.reader(rows)


async def begun_anew(work: Callable[[], Awaitable[T]]) -> T:
    """Do *work*, a whole transaction, anew where it was given up to another one, as in a deadlock.

    Whoever cancels or pauses a run and whoever ends its children may want the same rows in another order.
    """
    for _ in range(failures.MOST_GIVEN_UP):
        try:
            return await work()
        except DatabaseRefused as refused:
            if not failures.asks_for_another_transaction(refused.__cause__):
                raise
    return await work()


async def _hang_up(connection: Connection, error: BaseException) -> None:
    """Close a connection whose statement was cut off by *error*, so that it is never lent again."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        # Cut off between the messages of a statement, it would keep its locks until it is used again.
        connection.terminate()
        return
    # A statement that has run out of time goes on: it is told to stop before the connection ends.
    with suppress(*DRIVER_ERRORS):
        await connection.close(timeout=LONGEST_CLOSE)


class Database:
    """A pool of asyncpg connections to one schema."""

    def __init__(self, config: DatabaseConfig) -> None:
        self.config = config
        self.schema = config.schema
        self._address = shown_address(config.dsn)
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect; raises `DatabaseUnavailable` when that fails.  Safe to call twice."""
        async with self._opening:
            if self._pool is not None:
                return
            pool = Pool(self.connect, self.config.pool_size)
            pool.give_back(await pool.take())
            self._pool = pool

    @property
    def lost(self) -> int:
        """How many connections of the pool broke; the next one may lead to another server, an older copy."""
        return 0 if self._pool is None else self._pool.lost

    async def close(self) -> None:
        """Close the pool, waiting at most 5 s for statements in flight."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def connect(self) -> Connection:
        """Return a connection of its own, outside the pool."""
        with self._connecting():
            return cast(Connection, await asyncpg.connect(**self.config.connect_options()))

    def _connecting(self) -> AbstractContextManager[None]:
        return own_errors(self.schema, self._address)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection from the pool."""
        pool = self._opened()
        lent = await pool.take()
        try:
            yield lent
        except CUT_OFF as error:
            await _hang_up(lent, error)
            raise
        finally:
            pool.give_back(lent)

    def _opened(self) -> Pool:
        if self._pool is None:
            msg = "there are no connections yet: use the client in `async with`, or call its open() first"
            raise DatabaseUnavailable(msg)
        return self._pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction that commits when the block ends well."""
        async with self.connection() as connection:
            # A claim under a limit counts what is committed once it has its lock, whatever the default is.
            transaction = connection.transaction(isolation="read_committed")
            try:
                with own_errors(self.schema):
                    await transaction.start()
            except BaseException:
                # asyncpg takes it to be in a transaction from here on, whatever BEGIN came to.
                connection.terminate()
                raise
            try:
                yield connection
            except BaseException:
                # The connection may be what broke; the caller's error says more than a failed rollback.
                with suppress(*DRIVER_ERRORS):
                    await transaction.rollback()
                raise
            with own_errors(self.schema):
                await transaction.commit()

    async def run_read_committed(self, statement: Statement[T]) -> T:
        """Run *statement*, each part of which has to see what was committed before that part began.

        Sessions of our own are set so; behind a pooler it takes a transaction that says so.
        """
        if not self.config.pgbouncer:
            return await self.run(statement)
        async with self.transaction() as connection:
            return await self.run(statement, connection)

    async def run(self, statement: Statement[T], connection: Connection | None = None) -> T:
        """Run *statement* on *connection*, or in a transaction of its own, which `begun_anew` may repeat."""
        if connection is not None:
            return await run_on(connection, statement, self.schema)
        pool = self._opened()
        # What `connection` does, without the price of a generator: nearly every statement comes through here.
        lent = pool.take_idle(statement.name) or await pool.take()
        pool.has_run(lent, statement.name)
        try:
            return await begun_anew(lambda: run_on(lent, statement, self.schema))
        except CUT_OFF as error:
            await _hang_up(lent, error)
            raise
        finally:
            pool.give_back(lent)
