"""The fastest way in for very many jobs: COPY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs as statements
from holdfast.store.database import Connection, own_errors, run_on
from holdfast.store.jobs import Reserved
from holdfast.store.statement import Row, Statement
from holdfast.store.sync_database import SyncConnection, own_errors_sync, run_on_sync

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
LIVE_COLUMNS = ("job_id", "place", "queue", "kind", "priority", "state", "run_at", "concurrency_key")


def fits(jobs: Sequence[NewJob]) -> bool:
    """True where COPY can take these jobs: a unique key or a placement needs the slower way."""
    return all(job.unique_key is None and job.placement is None for job in jobs)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one table, as COPY takes them."""

    name: str
    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Load:
    """All that a COPY of jobs has to do in one transaction: the tables, then the statements."""

    tables: tuple[Table, ...]
    after: tuple[Statement[list[int]], ...]


def load(jobs: Sequence[NewJob], reserved: Reserved) -> Load:
    """Return what puts *jobs* in under the reserved ids; they are due as of the reservation's time."""
    dues = [_due(job, reserved.now) for job in jobs]
    tables = (
        Table("jobs", JOB_COLUMNS, _asked(jobs, reserved)),
        Table("live_jobs", LIVE_COLUMNS, _lived(jobs, reserved, dues)),
    )
    later = min((due for due in dues if due > reserved.now), default=None)
    ready = {job.queue for job, due in zip(jobs, dues, strict=True) if due <= reserved.now}
    announce = statements.announce(sorted(ready), later)
    keyed = {job.queue: job.concurrency_key for job in jobs if job.concurrency_key is not None}
    if not keyed:
        return Load(tables, (announce,))
    return Load(tables, (statements.mark_keyed(list(keyed), list(keyed.values())), announce))


async def copy_jobs(connection: Connection, schema: str, jobs: Sequence[NewJob]) -> list[JobHandle]:
    """Put *jobs* in by COPY, inside the transaction that *connection* is in."""
    reserved = await run_on(connection, statements.reserve_ids(len(jobs)), schema)
    work = load(jobs, reserved)
    with own_errors(schema):
        for table in work.tables:
            await connection.copy_records_to_table(
                table.name, schema_name=schema, columns=table.columns, records=table.rows
            )
    for statement in work.after:
        await run_on(connection, statement, schema)
    return [JobHandle(job_id) for job_id in reserved.ids]


def copy_jobs_sync(connection: SyncConnection, schema: str, jobs: Sequence[NewJob]) -> list[JobHandle]:
    """Put *jobs* in by COPY, inside the transaction that a psycopg *connection* is in."""
    reserved = run_on_sync(connection, statements.reserve_ids(len(jobs)), schema)
    work = load(jobs, reserved)
    with own_errors_sync(schema), connection.cursor() as cursor:
        for table in work.tables:
            target = f'copy "{schema}".{table.name} ({", ".join(table.columns)}) from stdin'
            with cursor.copy(target.encode()) as copy:
                for row in table.rows:
                    copy.write_row(row)
    for statement in work.after:
        run_on_sync(connection, statement, schema)
    return [JobHandle(job_id) for job_id in reserved.ids]


def _due(job: NewJob, now: datetime) -> datetime:
    if job.run_at is not None:
        return job.run_at
    return now if job.delay is None else now + timedelta(seconds=job.delay)


def _asked(jobs: Sequence[NewJob], reserved: Reserved) -> list[Row]:
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
            reserved.now,
        )
        for job_id, job in zip(reserved.ids, jobs, strict=True)
    ]


def _lived(jobs: Sequence[NewJob], reserved: Reserved, dues: Sequence[datetime]) -> list[Row]:
    return [
        (
            job_id,
            job_id,
            job.queue,
            job.kind,
            job.priority,
            "scheduled" if due > reserved.now else "available",
            due,
            job.concurrency_key,
        )
        for job_id, job, due in zip(reserved.ids, jobs, dues, strict=True)
    ]
