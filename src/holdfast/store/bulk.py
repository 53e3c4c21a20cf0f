"""The fastest way in for very many jobs: COPY.

The lines of a COPY are written here and not by a driver: most jobs of a batch differ in nothing but their id
and their arguments, so that what is the same is made into text once.  The format is what PostgreSQL's
documentation of COPY has under "Text Format".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

from holdfast.errors import InputInvalid
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import jobs as statements
from holdfast.store.database import Connection, own_errors, run_on
from holdfast.store.jobs import Reserved, array_literal
from holdfast.store.statement import Statement
from holdfast.store.sync_database import SyncConnection, own_errors_sync, run_on_sync

# The arguments come second, behind the id: what is before and behind them is the same for many jobs.
JOB_COLUMNS = (
    "id",
    "args",
    "kind",
    "queue",
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
CHUNK = 1000

_TERMS = attrgetter(*(name for name in NewJob.__struct_fields__ if name != "args"))
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def fits(jobs: Sequence[NewJob]) -> bool:
    """True where COPY can take these jobs: a unique key or a placement needs the slower way."""
    return all(job.unique_key is None and job.placement is None for job in jobs)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one table as lines for COPY, in chunks of UTF-8."""

    name: str
    columns: tuple[str, ...]
    chunks: Iterator[bytes]

    async def sent(self) -> AsyncIterator[bytes]:
        """Give the chunks to a driver that awaits them."""
        for chunk in self.chunks:
            yield chunk


@dataclass(frozen=True, slots=True)
class Load:
    """All that a COPY of jobs has to do in one transaction: the tables, then the statements."""

    tables: tuple[Table, ...]
    after: tuple[Statement[list[int]], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs in a row that differ in nothing but their arguments: *terms* is the first of them."""

    terms: NewJob
    ids: list[int]
    args: list[str]
    due: datetime


def load(jobs: Sequence[NewJob], reserved: Reserved) -> Load:
    """Return what puts *jobs* in under the reserved ids; they are due as of the reservation's time."""
    groups = list(_groups(jobs, reserved))
    tables = (
        Table("jobs", JOB_COLUMNS, _asked(groups, reserved.now)),
        Table("live_jobs", LIVE_COLUMNS, _lived(groups, reserved.now)),
    )
    later = min((group.due for group in groups if group.due > reserved.now), default=None)
    ready = {group.terms.queue for group in groups if group.due <= reserved.now}
    announce = statements.announce(sorted(ready), later)
    keyed = {one.terms.queue: one.terms.concurrency_key for one in groups if one.terms.concurrency_key}
    if not keyed:
        return Load(tables, (announce,))
    return Load(tables, (statements.mark_keyed(list(keyed), list(keyed.values())), announce))


async def copy_jobs(connection: Connection, schema: str, jobs: Sequence[NewJob]) -> list[JobHandle]:
    """Put *jobs* in by COPY, inside the transaction that *connection* is in."""
    reserved = await run_on(connection, statements.reserve_ids(len(jobs)), schema)
    work = load(jobs, reserved)
    with own_errors(schema):
        for table in work.tables:
            await connection.copy_to_table(
                table.name, schema_name=schema, columns=table.columns, source=table.sent(), format="text"
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
                for chunk in table.chunks:
                    copy.write(chunk)
    for statement in work.after:
        run_on_sync(connection, statement, schema)
    return [JobHandle(job_id) for job_id in reserved.ids]


def _groups(jobs: Sequence[NewJob], reserved: Reserved) -> Iterator[Group]:
    begun = 0
    for _, alike in groupby(jobs, _TERMS):
        args = [job.args for job in alike]
        terms = jobs[begun]
        yield Group(terms, reserved.ids[begun : begun + len(args)], args, _due(terms, reserved.now))
        begun += len(args)


def _due(job: NewJob, now: datetime) -> datetime:
    if job.run_at is not None:
        return job.run_at
    return now if job.delay is None else now + timedelta(seconds=job.delay)


def _asked(groups: Sequence[Group], now: datetime) -> Iterator[bytes]:
    for group in groups:
        job = group.terms
        rest = _cells(
            job.kind,
            job.queue,
            job.priority,
            job.max_attempts,
            job.timeout,
            job.retry,
            job.concurrency_key,
            array_literal(job.tags),
            job.meta,
            job.parent_id,
            job.trace,
            now.isoformat(),
        )
        for ids, args in _parts(group):
            pairs = zip(ids, args, strict=True)
            yield _encoded("".join([f"{one}\t{_escaped(text)}\t{rest}\n" for one, text in pairs]))


def _lived(groups: Sequence[Group], now: datetime) -> Iterator[bytes]:
    for group in groups:
        job = group.terms
        state = "scheduled" if group.due > now else "available"
        rest = _cells(job.queue, job.kind, job.priority, state, group.due.isoformat(), job.concurrency_key)
        for ids, _ in _parts(group):
            yield _encoded("".join([f"{one}\t{one}\t{rest}\n" for one in ids]))


def _parts(group: Group) -> Iterator[tuple[list[int], list[str]]]:
    for begin in range(0, len(group.ids), CHUNK):
        yield group.ids[begin : begin + CHUNK], group.args[begin : begin + CHUNK]


def _cells(*values: str | float | None) -> str:
    return "\t".join("\\N" if value is None else _escaped(str(value)) for value in values)


def _escaped(text: str) -> str:
    # Most arguments have nothing to escape, and to see that is quicker than to do it.
    return text.translate(_ESCAPES) if "\\" in text or not text.isprintable() else text


def _encoded(lines: str) -> bytes:
    try:
        return lines.encode()
    except UnicodeEncodeError as error:
        msg = f"a value cannot be sent to PostgreSQL: {error.reason}"
        raise InputInvalid(msg) from None
