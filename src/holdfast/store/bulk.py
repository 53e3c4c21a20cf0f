"""The fastest way in for very many jobs: COPY."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs as statements
from holdfast.store.database import Connection, own_errors, run_on

JOB_COLUMNS = (
    "id",
    "kind",
    "queue",
    "args",
    "priority",
    "max_attempts",
    "timeout",
    "retry",
    "concurrency_key",
    "tags",
    "meta",
    "parent_id",
    "trace",
    "created_at",
)
LIVE_COLUMNS = ("job_id", "queue", "kind", "priority", "state", "run_at", "concurrency_key")


def fits(jobs: Sequence[NewJob]) -> bool:
    """True where COPY can take these jobs: a unique key needs the slower way."""
    return all(job.unique_key is None for job in jobs)


async def copy_jobs(connection: Connection, schema: str, jobs: Sequence[NewJob]) -> list[JobHandle]:
    """Put *jobs* in by COPY, inside the transaction that *connection* is in."""
    async with own_errors(schema):
        now: datetime = await connection.fetchval(f'select "{schema}".now()')
    ids = await run_on(connection, statements.reserve_ids(len(jobs)), schema)
    dues = [_due(job, now) for job in jobs]
    async with own_errors(schema):
        await connection.copy_records_to_table(
            "jobs", schema_name=schema, columns=JOB_COLUMNS, records=_asked(jobs, ids, now)
        )
        await connection.copy_records_to_table(
            "live_jobs", schema_name=schema, columns=LIVE_COLUMNS, records=_lived(jobs, ids, dues, now)
        )
    queues = sorted({job.queue for job in jobs})
    keyed = {(job.queue, job.concurrency_key) for job in jobs if job.concurrency_key is not None}
    if keyed:
        marks = dict(keyed)
        await run_on(connection, statements.mark_keyed(list(marks), list(marks.values())), schema)
    later = min((due for due in dues if due > now), default=None)
    await run_on(connection, statements.announce(queues, later), schema)
    return [JobHandle(job_id) for job_id in ids]


def _due(job: NewJob, now: datetime) -> datetime:
    if job.run_at is not None:
        return job.run_at
    return now if job.delay is None else now + timedelta(seconds=job.delay)


def _asked(jobs: Sequence[NewJob], ids: Sequence[int], now: datetime) -> list[tuple[object, ...]]:
    return [
        (
            job_id,
            job.kind,
            job.queue,
            job.args,
            job.priority,
            job.max_attempts,
            job.timeout,
            job.retry,
            job.concurrency_key,
            job.tags,
            job.meta,
            job.parent_id,
            job.trace,
            now,
        )
        for job_id, job in zip(ids, jobs, strict=True)
    ]


def _lived(
    jobs: Sequence[NewJob], ids: Sequence[int], dues: Sequence[datetime], now: datetime
) -> list[tuple[object, ...]]:
    return [
        (
            job_id,
            job.queue,
            job.kind,
            job.priority,
            "scheduled" if due > now else "available",
            due,
            job.concurrency_key,
        )
        for job_id, job, due in zip(ids, jobs, dues, strict=True)
    ]
