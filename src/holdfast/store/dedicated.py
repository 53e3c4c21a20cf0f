"""A connection that one thread has to itself."""

from __future__ import annotations

from typing import TypeVar

import psycopg

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.store.address import shown_address
from holdfast.store.database import ENCODING, DatabaseConfig
from holdfast.store.statement import Statement
from holdfast.store.sync_database import SyncConnection, own_errors_sync, run_on_sync

T = TypeVar("T")

# In seconds.
CONNECT_TIMEOUT = 5


class DedicatedConnection:
    """Connects when it is needed, and anew after anything has failed.

    Its session is known by its *role*.  What has had no answer for *patience* seconds has failed.
    """

    def __init__(self, config: DatabaseConfig, role: str, *, patience: float) -> None:
        self._config, self._role, self._patience = config, role, patience
        self._connection: SyncConnection | None = None

    def run(self, statement: Statement[T]) -> T:
        """Run *statement* in a transaction of its own; raises `DatabaseUnavailable`, `DatabaseRefused`."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            return run_on_sync(self._connection, statement, self._config.schema)
        except HoldfastError:
            self.close()
            raise
        except psycopg.Error as error:
            # What psycopg itself does not understand says nothing of the statement, and must end no thread.
            self.close()
            raise DatabaseUnavailable(f"the connection to PostgreSQL failed: {error!r}") from error

    def _connect(self) -> SyncConnection:
        with own_errors_sync(self._config.schema, shown_address(self._config.dsn)):
            return psycopg.connect(
                self._config.dsn,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT,
                prepare_threshold=None,
                application_name=f"{self._config.application_name} {self._role}",
                tcp_user_timeout=int(self._patience * 1000),
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                client_encoding=ENCODING,
            )

    def close(self) -> None:
        """Close what is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
