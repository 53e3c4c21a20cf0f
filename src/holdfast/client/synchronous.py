# Written by scripts/sync_client.py from asynchronous.py: change that one and run `make generate`.
"""The client for sync applications."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, Unpack

from holdfast.app.handler import JobRequest
from holdfast.app.options import resolved, seconds_from
from holdfast.client.answer import answer
from holdfast.client.keywords import EnqueueOptions, chosen
from holdfast.errors import JobNotFound, WaitTimeout
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import bulk, jobs
from holdfast.store.foreign import run_foreign_sync
from holdfast.store.sync_database import DatabaseConfig, SyncDatabase

COPY_FROM = 500
FIRST_LOOK, LAST_LOOK = 0.005, 0.25


class SyncClient:
    """Enqueues jobs and waits for them.  Use it as ``with SyncClient(dsn) as client``.

    *schema* chooses the environment; *pgbouncer* is for a pooler in transaction mode.
    """

    def __init__(
        self, dsn: str, *, schema: str = "holdfast", pool_size: int = 5, pgbouncer: bool = False
    ) -> None:
        self._database = SyncDatabase(
            DatabaseConfig(
                dsn=dsn,
                schema=schema,
                pool_size=pool_size,
                pgbouncer=pgbouncer,
                application_name="holdfast client",
            )
        )

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; raises `DatabaseUnavailable`."""
        self._database.open()

    def close(self) -> None:
        """Disconnect."""
        self._database.close()

    def enqueue(
        self, request: JobRequest, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Enqueue one job; it exists once the transaction commits.

        *connection* is the caller's own, of psycopg, SQLAlchemy or Django: then the job is part
        of its transaction.  Raises `OptionInvalid`, `DuplicateJob`, `DatabaseUnavailable`.
        """
        [handle] = self._put([resolved(request, chosen(options))], connection)
        return handle

    def enqueue_many(
        self, requests: Iterable[JobRequest], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> list[JobHandle]:
        """Enqueue many jobs, all or none, under the same options; answers their handles in order."""
        same = chosen(options)
        rows = [resolved(request, same) for request in requests]
        if not rows:
            return []
        if connection is None and len(rows) >= COPY_FROM and bulk.fits(rows):
            with self._database.transaction() as own:
                return bulk.copy_jobs_sync(own, self._database.schema, rows)
        return self._put(rows, connection)

    def _put(self, rows: list[NewJob], connection: Any) -> list[JobHandle]:
        statement = jobs.enqueue_jobs(rows)
        if connection is None:
            return self._database.run(statement)
        return run_foreign_sync(connection, statement, self._database.schema)

    def wait(self, job_id: int, *, timeout: timedelta | float | None = None) -> Any:
        """Wait for a job and return its result.

        Raises `JobFailed`, `JobCancelled`, `JobNotFound`, and `WaitTimeout` after *timeout* seconds.
        """
        patience = None if timeout is None else seconds_from("timeout", timeout)
        began, pause = monotonic(), FIRST_LOOK
        while True:
            end = self._database.run(jobs.job_end(job_id))
            if end is None:
                raise JobNotFound(job_id)
            if end.state.is_final:
                return answer(job_id, end)
            if patience is not None:
                left = began + patience - monotonic()
                if left <= 0:
                    raise WaitTimeout(job_id, patience)
                pause = min(pause, left)
            sleep(pause)
            pause = min(LAST_LOOK, pause * 1.5)
