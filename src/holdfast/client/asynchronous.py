"""The client for async applications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.options import NOTHING, Options, resolved
from holdfast.client.keywords import EnqueueOptions
from holdfast.errors import JobCancelled, JobFailed, JobNotFound, WaitTimeout
from holdfast.model.job import JobHandle, JobState, NewJob
from holdfast.store import bulk, jobs
from holdfast.store.database import Database, DatabaseConfig
from holdfast.store.foreign import run_foreign
from holdfast.store.jobs import JobEnd

COPY_FROM = 500
FIRST_LOOK, LAST_LOOK = 0.005, 0.25


class Client:
    """Enqueues jobs and waits for them.  Use it as ``async with Client(dsn) as client``.

    *schema* chooses the environment; *pgbouncer* is for a pooler in transaction mode.
    """

    def __init__(
        self, dsn: str, *, schema: str = "holdfast", pool_size: int = 5, pgbouncer: bool = False
    ) -> None:
        config = DatabaseConfig(dsn=dsn, schema=schema, pool_size=pool_size, pgbouncer=pgbouncer)
        self._database = Database(replace(config, application_name="holdfast client"))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; raises `DatabaseUnavailable`."""
        await self._database.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._database.close()

    async def enqueue(
        self, request: JobRequest, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Enqueue one job; it exists once the transaction commits.

        *connection* is the caller's own, of asyncpg, psycopg, SQLAlchemy or Django: then the job is part
        of its transaction.  Raises `OptionInvalid`, `DuplicateJob`, `DatabaseUnavailable`.
        """
        job = resolved(request, Options(**options) if options else NOTHING)
        return (await self._put([job], connection))[0]

    async def enqueue_many(
        self, requests: Iterable[JobRequest], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> list[JobHandle]:
        """Enqueue many jobs, all or none, under the same options; answers their handles in order."""
        chosen = Options(**options) if options else NOTHING
        rows = [resolved(request, chosen) for request in requests]
        if not rows:
            return []
        if connection is None and len(rows) >= COPY_FROM and bulk.fits(rows):
            async with self._database.transaction() as own:
                return await bulk.copy_jobs(own, self._database.schema, rows)
        return await self._put(rows, connection)

    async def _put(self, rows: list[NewJob], connection: Any) -> list[JobHandle]:
        statement = jobs.enqueue_jobs(rows)
        if connection is None:
            return await self._database.run(statement)
        return await run_foreign(connection, statement, self._database.schema)

    async def wait(self, job_id: int, *, timeout: float | None = None) -> Any:
        """Wait for a job and return its result.

        Raises `JobFailed`, `JobCancelled`, `JobNotFound`, and `WaitTimeout` after *timeout* seconds.
        """
        pause = FIRST_LOOK
        try:
            async with asyncio.timeout(timeout):
                while True:
                    end = await self._database.run(jobs.job_end(job_id))
                    if end is None:
                        raise JobNotFound(job_id)
                    if end.state.is_final:
                        return _answer(job_id, end)
                    await asyncio.sleep(pause)
                    pause = min(LAST_LOOK, pause * 1.5)
        except TimeoutError:
            raise WaitTimeout(job_id, timeout or 0.0) from None


def _answer(job_id: int, end: JobEnd) -> Any:
    if end.state is JobState.FAILED:
        raise JobFailed(job_id, end.reason or end.error or "no reason is recorded")
    if end.state is JobState.CANCELLED:
        raise JobCancelled(job_id, end.reason or "no reason is recorded")
    return None if end.result is None else msgspec.json.decode(end.result)
