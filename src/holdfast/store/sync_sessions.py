"""Connections for sync handlers' own transactions: the twin of `sessions` for threads and processes."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from time import monotonic

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from holdfast.store.address import shown_address
from holdfast.store.database import ENCODING, KEEPALIVES, DatabaseConfig
from holdfast.store.sessions import RESET
from holdfast.store.sync_database import SyncConnection, own_errors_sync, still_there

# Seconds for which a session may be unused.
LONGEST_IDLE = 300.0

# As in the sessions of async handlers.  Not among the connection's options: an address may have its own.
_KEEPALIVES = "; ".join(f"set {name} = {value}" for name, value in KEEPALIVES.items())
# What is prepared goes too, for another `psycopg.Connection` gives the same names again, and so do plans of
# functions, which were made under the settings of whoever called first.
_RESET = f"{RESET}; deallocate all; discard plans; {_KEEPALIVES}"


class SyncSessions:
    """Sessions of the server, each lent to one handler at a time under a `psycopg.Connection` of its own.

    What a handler registers or sets on that object ends with it, the session is reset, and whoever keeps the
    object finds it closed.  A pool of psycopg's lends one object again and again, with the adapters and
    the row factory of whoever had it before.  No limit is needed, for a handler takes one.  Behind a pooler
    each has a connection of its own: the statements of a reset would reach somebody else's session there.
    So has what a handler forks, for what is idle here is its parent's.
    """

    def __init__(self, config: DatabaseConfig, longest_idle: float = LONGEST_IDLE) -> None:
        self.config, self._longest_idle = config, longest_idle
        self._address = shown_address(config.dsn)
        # What was used last is lent first; each with the time since when it is idle, the first for longest.
        self._idle: list[tuple[SyncConnection, float]] = []
        # Reentrant: the end of a forgotten handler's block may come while this thread holds it.
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._closed = False
        self._owner = os.getpid()

    def lend(self) -> SyncConnection:
        """Lend a connection on which a transaction begins with the first statement.

        Raises `DatabaseUnavailable` where none can be opened.
        """
        while (connection := self._last()) is not None:
            if still_there(connection):
                return connection
            connection.close()
        return self._new()

    def take_back(self, connection: SyncConnection) -> None:
        """Keep the session for the next handler; where a transaction has not ended, close it."""
        may_go_on = not self.config.pgbouncer and self._is_ours
        pgconn = _taken_out_of(connection) if may_go_on else None
        if pgconn is None:
            # The handler's error, or its commit, says more than a failure of this.
            with suppress(psycopg.Error):
                connection.close()
            return
        fresh: SyncConnection = psycopg.Connection(pgconn)
        try:
            fresh.autocommit = True
            fresh.execute(_RESET.encode())
            _begin(fresh)
        except psycopg.Error:
            fresh.close()
            return
        with self._lock:
            if not self._closed:
                self._idle.append((fresh, monotonic()))
                self._watch()
                return
        fresh.close()

    def close(self) -> None:
        """Close what is idle; what is lent will be closed when it is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
        for connection, _ in idle:
            connection.close()

    @property
    def _is_ours(self) -> bool:
        # Asked before the lock is taken, which another thread may have held when this process was forked off.
        return self._owner == os.getpid()

    def _last(self) -> SyncConnection | None:
        if not self._is_ours:
            return None
        with self._lock:
            return self._idle.pop()[0] if self._idle else None

    def _new(self) -> SyncConnection:
        with own_errors_sync(self.config.schema, self._address):
            connection: SyncConnection = psycopg.connect(
                self.config.dsn,
                application_name=f"{self.config.application_name} job",
                connect_timeout=max(2, int(self.config.connect_timeout)),
                # As in `SyncDatabase`: a session that is lent again may lead to a machine that is gone.
                tcp_user_timeout=int(self.config.command_timeout * 1000),
                client_encoding=ENCODING,
                autocommit=True,
            )
            if not self.config.pgbouncer:
                connection.execute(_KEEPALIVES.encode())
            _begin(connection)
        return connection

    def _watch(self) -> None:
        """See to it that what is idle for too long is closed; called under the lock."""
        if self._timer is None and self._idle:
            wait = self._idle[0][1] + self._longest_idle - monotonic()
            timer = threading.Timer(max(0.0, wait), self._tidy)
            timer.daemon = True
            timer.start()
            self._timer = timer

    def _tidy(self) -> None:
        with self._lock:
            self._timer = None
            last = monotonic() - self._longest_idle
            old = [connection for connection, since in self._idle if since <= last]
            del self._idle[: len(old)]
            self._watch()
        for connection in old:
            connection.close()


def _begin(connection: SyncConnection) -> None:
    connection.autocommit = False
    connection.prepare_threshold = None


def _taken_out_of(connection: SyncConnection) -> PGconn | None:
    """Take the session out of a connection, which is closed from then on; None where it must not go on."""
    # Held by whoever else has a statement under way on it.
    if not connection.lock.acquire(blocking=False):
        return None
    try:
        pgconn = connection.pgconn
        if pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return None
        connection.pgconn = _NOWHERE
        return pgconn
    finally:
        connection.lock.release()


def _nowhere() -> PGconn:
    closed = pq.PGconn.connect_start(b"no address")
    closed.finish()
    return closed


# What a connection leads to whose session has been taken out of it.
_NOWHERE = _nowhere()
