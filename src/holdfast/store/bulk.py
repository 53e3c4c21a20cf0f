"""The fastest way in for very many jobs: COPY.

The rows of a COPY are written here and not by a driver: most jobs of a batch differ in nothing but their id
and their arguments, so that what is the same is packed once.  The server takes the binary format in two
thirds of the time that it needs for text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from struct import Struct

from holdfast.model.job import JobHandle, NewJob
from holdfast.store import binary_copy as pack
from holdfast.store import jobs as statements
from holdfast.store.database import Connection, own_errors, run_on
from holdfast.store.incoming import Incoming
from holdfast.store.jobs import Reserved
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
_LINE = attrgetter("queue", "priority")

# What begins each row: how many values it has and its id; then the length of the arguments with their
# version, or for live_jobs the id once more as its place.
_asked_row = Struct(">hiqib").pack
_live_row = Struct(">hiqiq").pack


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one table in the binary format of COPY, in chunks."""

    name: str
    columns: tuple[str, ...]
    chunks: Iterator[bytes]

    async def sent(self) -> AsyncIterator[bytes]:
        """Give the chunks to a driver that awaits them."""
        for chunk in self.chunks:
            yield chunk


@dataclass(frozen=True, slots=True)
class Group:
    """Up to a thousand jobs that differ in nothing but their arguments; *terms* is the first."""

    terms: NewJob
    ids: list[int]
    args: list[str]
    due: datetime


class Load:
    """What a COPY of *incoming* does in one transaction: both tables of each block, then the statements.

    A table is made ready while the server takes it in, and more jobs are read meanwhile.
    """

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.handles: list[JobHandle] = []
        # With when the jobs are to be staged, None for those that are available.
        self._terms: list[tuple[NewJob, datetime | None]] = []

    def tables(self, block: Sequence[NewJob], reserved: Reserved) -> tuple[Table, Table]:
        """Return both tables of a block, which comes under the reserved ids and is due as of their time.

        The second rests on what the first has found, so they are to be sent in this order.
        """
        now, groups = reserved.now, list[Group]()
        asked = _asked(self._noted(self._groups(block, reserved), groups, now), now)
        lived = self._meanwhile(pack.messages(_lived(groups, now)))
        return Table("jobs", JOB_COLUMNS, pack.messages(asked)), Table("live_jobs", LIVE_COLUMNS, lived)

    def _groups(self, jobs: Sequence[NewJob], reserved: Reserved) -> Iterator[Group]:
        for begin in range(0, len(jobs), CHUNK):
            chunk, ids = jobs[begin : begin + CHUNK], reserved.ids[begin : begin + CHUNK]
            alike, given = _alike(chunk), ids
            if len(alike) > 1 and len(chunk) == CHUNK:
                # Jobs of a line are claimed together, so they lie together, in indexes by id as well.  Fewer
                # keep the ids, and places, in the order given.
                lines = [_LINE(job) for job in chunk]
                numbered = sorted(range(len(chunk)), key=lines.__getitem__)
                given = [one for _, one in sorted(zip(numbered, ids, strict=True))]
                # What is alike is packed once.
                packed = sorted(numbered, key=lambda n: (lines[n], chunk[n].kind))
                chunk, ids = [chunk[n] for n in packed], [given[n] for n in packed]
                alike = _alike(chunk)
            self.handles += map(JobHandle, given)
            begun = 0
            for part in alike:
                own = ids[begun : begun + len(part)]
                yield Group(part[0], own, [job.args for job in part], _due(part[0], reserved.now))
                begun += len(part)

    def _noted(self, found: Iterator[Group], groups: list[Group], now: datetime) -> Iterator[Group]:
        for group in found:
            groups.append(group)
            self._terms.append((group.terms, group.due if group.due > now else None))
            yield group

    def _meanwhile(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        # The server needs twice as long for these rows as for their making and for reading as many jobs.
        for message in messages:
            yield message
            self._incoming.read_on()

    def after(self) -> list[Statement[list[int]]]:
        """Return what remains to be done once the tables are in."""
        later = min((due for _, due in self._terms if due is not None), default=None)
        ready = [one for one, due in self._terms if due is None]
        queues = sorted({one.queue for one in ready})
        best = min((one.priority for one in ready), default=0)
        keyed = {one.queue: one.concurrency_key for one, _ in self._terms if one.concurrency_key}
        marks = [statements.mark_keyed(list(keyed), list(keyed.values()))] if keyed else []
        return [*marks, statements.announce(queues, best, later)]


async def put_jobs(connection: Connection, schema: str, jobs: Sequence[NewJob]) -> list[JobHandle]:
    """Put *jobs* in the quicker way, inside the transaction that *connection* is in."""
    incoming = Incoming(jobs)
    rows = incoming.read()
    if incoming.pays:
        return await copy_jobs(connection, schema, incoming)
    return await run_on(connection, statements.enqueue_jobs(rows), schema)


async def copy_jobs(connection: Connection, schema: str, incoming: Incoming) -> list[JobHandle]:
    """Put jobs in by COPY, inside the transaction that *connection* is in; raises `NotRead`."""
    work = Load(incoming)
    for block in incoming.blocks():
        reserved = await run_on(connection, statements.reserve_ids(len(block)), schema)
        with own_errors(schema):
            for table in work.tables(block, reserved):
                await connection.copy_to_table(
                    table.name,
                    schema_name=schema,
                    columns=table.columns,
                    source=table.sent(),
                    format="binary",
                )
    for statement in work.after():
        await run_on(connection, statement, schema)
    return work.handles


def copy_jobs_sync(connection: SyncConnection, schema: str, incoming: Incoming) -> list[JobHandle]:
    """Put jobs in by COPY, inside the transaction that a psycopg *connection* is in; raises `NotRead`."""
    work = Load(incoming)
    for block in incoming.blocks():
        reserved = run_on_sync(connection, statements.reserve_ids(len(block)), schema)
        with own_errors_sync(schema), connection.cursor() as cursor:
            for table in work.tables(block, reserved):
                target = (
                    f'copy "{schema}".{table.name} ({", ".join(table.columns)}) from stdin (format binary)'
                )
                with cursor.copy(target.encode()) as copy:
                    for chunk in table.chunks:
                        copy.write(chunk)
    for statement in work.after():
        run_on_sync(connection, statement, schema)
    return work.handles


def _alike(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    return [list(group) for _, group in groupby(jobs, _TERMS)]


def _due(job: NewJob, now: datetime) -> datetime:
    if job.run_at is not None:
        return job.run_at
    return now if job.delay is None else now + timedelta(seconds=job.delay)


def _asked(groups: Iterable[Group], now: datetime) -> Iterator[bytes]:
    count = len(JOB_COLUMNS)
    for group in groups:
        job = group.terms
        rest = (
            pack.text(job.kind)
            + pack.text(job.queue)
            + pack.smallint(job.priority)
            + pack.integer(job.max_attempts)
            + pack.double(job.timeout)
            + pack.jsonb(job.retry)
            + pack.text(job.concurrency_key)
            + pack.texts(job.tags)
            + pack.jsonb(job.meta)
            + (pack.NOTHING if job.parent_id is None else pack.bigint(job.parent_id))
            + pack.text(job.trace)
            + pack.moment(now)
        )
        pairs = zip(group.ids, [args.encode() for args in group.args], strict=True)
        yield b"".join(
            [_asked_row(count, 8, one, 1 + len(data), pack.JSONB) + data + rest for one, data in pairs]
        )


def _lived(groups: Iterable[Group], now: datetime) -> Iterator[bytes]:
    count = len(LIVE_COLUMNS)
    for group in groups:
        job = group.terms
        rest = (
            pack.text(job.queue)
            + pack.text(job.kind)
            + pack.smallint(job.priority)
            + pack.text("scheduled" if group.due > now else "available")
            + pack.moment(group.due)
            + pack.text(job.concurrency_key)
        )
        yield b"".join([_live_row(count, 8, one, 8, one) + rest for one in group.ids])
