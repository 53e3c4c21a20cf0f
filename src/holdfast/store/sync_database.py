"""Runs statements on psycopg: the sync twin of `Database`, for programs without an event loop."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any, TypeAlias, TypeVar
from weakref import finalize

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from holdfast.errors import DatabaseRefused, DatabaseUnavailable
from holdfast.store import failures
from holdfast.store.address import shown_address
from holdfast.store.database import ENCODING, DatabaseConfig
from holdfast.store.foreign import run_on_psycopg
from holdfast.store.statement import Statement

__all__ = ["DatabaseConfig", "SyncConnection", "SyncDatabase"]

T = TypeVar("T")

SyncConnection: TypeAlias = "psycopg.Connection[Any]"

# How long the pool may take to lend a connection, or to make one, before it is looked whether the server can
# be reached at all, in seconds.
PATIENCE = 1.0


@contextmanager
def own_errors_sync(schema: str, address: str | None = None) -> Iterator[None]:
    """Raise Holdfast's errors for what psycopg raises inside; *address* is what it connects to."""
    try:
        yield
    except (psycopg.Error, OSError, *failures.ODD_HOST) as error:
        meaning = failures.translated(error, schema, address)
        if meaning is None:
            raise
        raise meaning from error


def run_on_sync(connection: SyncConnection, statement: Statement[T], schema: str) -> T:
    """Run *statement* on a psycopg connection, inside whatever transaction it is in."""
    with own_errors_sync(schema):
        return run_on_psycopg(connection, statement, schema)


class SyncDatabase:
    """A pool of psycopg connections to one schema; many threads may share it.

    It connects when it is first used.  A process that was forked off afterwards gets a pool of its own.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self.config = config
        self.schema, self._address = config.schema, shown_address(config.dsn)
        self._pool: ConnectionPool[SyncConnection] | None = None
        self._opener = 0
        self._opening = threading.Lock()
        self._finalizer: finalize[[ConnectionPool[SyncConnection], int], SyncDatabase] | None = None

    def open(self) -> None:
        """Connect; raises `DatabaseUnavailable` when that fails.  Safe to call twice."""
        self._opened()

    def close(self) -> None:
        """Close the pool.  Safe to call twice; the next use opens a new one."""
        with self._opening:
            self._pool, finalizer = None, self._finalizer
        if finalizer is not None:
            finalizer()

    @contextmanager
    def connection(self) -> Iterator[SyncConnection]:
        """Lend a connection from the pool; every statement is a transaction of its own."""
        pool = self._opened()
        connection = self._lent(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)

    @contextmanager
    def transaction(self) -> Iterator[SyncConnection]:
        """Lend a connection inside a transaction that commits when the block ends well."""
        with self.connection() as connection, ExitStack() as stack:
            with own_errors_sync(self.schema):
                stack.enter_context(connection.transaction())
            yield connection
            with own_errors_sync(self.schema):
                stack.close()

    def run(self, statement: Statement[T], connection: SyncConnection | None = None) -> T:
        """Run *statement* in a transaction of its own, or on *connection*.

        Its own transaction is begun anew where it was given up to another one, as in a deadlock.
        """
        if connection is not None:
            return run_on_sync(connection, statement, self.schema)
        with self.connection() as lent:
            for _ in range(failures.MOST_GIVEN_UP):
                try:
                    return run_on_sync(lent, statement, self.schema)
                except DatabaseRefused as refused:
                    if not failures.asks_for_another_transaction(refused.__cause__):
                        raise
            return run_on_sync(lent, statement, self.schema)

    def _opened(self) -> ConnectionPool[SyncConnection]:
        with self._opening:
            if self._pool is None or self._opener != os.getpid():
                # A pool connects in the background and keeps the reason of a failure to itself.
                self._reach()
                self._pool, self._opener = self._new_pool(), os.getpid()
                # Whoever forgets to close must not wait for the pool's threads when the program ends.
                self._finalizer = finalize(self, _close, self._pool, self._opener)
            return self._pool

    def _new_pool(self) -> ConnectionPool[SyncConnection]:
        return ConnectionPool(
            self.config.dsn,
            kwargs=self._options(),
            min_size=0,
            max_size=self.config.pool_size,
            max_idle=300,
            timeout=PATIENCE,
            reconnect_timeout=PATIENCE,
            name=self.config.application_name,
            configure=_set_up,
            open=True,
        )

    def _lent(self, pool: ConnectionPool[SyncConnection]) -> SyncConnection:
        """Wait for a connection as long as the server can be reached at all."""
        began = monotonic()
        while monotonic() - began < self.config.command_timeout:
            try:
                connection = pool.getconn()
            except PoolTimeout:
                self._reach()
                continue
            except PoolClosed:
                msg = "the connections were closed meanwhile: call the client's open() first"
                raise DatabaseUnavailable(msg) from None
            if still_there(connection):
                return connection
            connection.close()
            pool.putconn(connection)
        msg = f"all {self.config.pool_size} connections are busy: give the client a larger pool_size"
        raise DatabaseUnavailable(msg)

    def _reach(self) -> None:
        with own_errors_sync(self.schema, self._address):
            psycopg.connect(self.config.dsn, **self._options()).close()

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "autocommit": True,
            "client_encoding": ENCODING,
            "connect_timeout": max(1, round(self.config.connect_timeout)),
            # What PostgreSQL has not acknowledged after so long will not come back on this connection.
            "tcp_user_timeout": int(self.config.command_timeout * 1000),
        }
        if self.config.pgbouncer:
            return options | {"prepare_threshold": None}
        settings = self.config.session_settings()
        options["application_name"] = settings.pop("application_name")
        # Added behind the options of the caller's own address, which would be lost otherwise.
        given = [conninfo_to_dict(self.config.dsn).get("options") or ""]
        ours = ["-c " + f"{name}={value}".replace(" ", r"\ ") for name, value in settings.items()]
        return options | {"options": " ".join([*map(str, given), *ours]).strip()}


def _set_up(connection: SyncConnection) -> None:
    # What a batch reads has to be what is committed by then, whatever the default of a role or pooler is.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED


def still_there(connection: SyncConnection) -> bool:
    """Read whether a pooled connection still stands: the server speaks unasked only to say goodbye."""
    if connection.closed:
        return False
    line = select.poll()
    line.register(connection.fileno(), select.POLLIN)
    return not line.poll(0)


def _close(pool: ConnectionPool[SyncConnection], opener: int) -> None:
    # After a fork the connections still belong to the parent: closing them here would cut its sessions.
    if opener == os.getpid():
        pool.close()
