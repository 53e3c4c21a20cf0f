"""Statements about jobs: enqueue, wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.errors import InputInvalid
from holdfast.model.job import Enqueued, JobHandle, JobState, NewJob
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, numbers, sparse

_SQL = blocks("jobs")
# What the jobs of one statement may come to; so few do so at no size that one may have.
MOST_BYTES = 512 * 1024 * 1024
ALWAYS_FIT = 480
# In what jobs are alike that one statement with an array of arguments can put in.
_TERMS = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in ("args", "trace")))


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job stands for somebody who waits for it; *result* is JSON text."""

    state: JobState
    result: str | None
    error: str | None
    reason: str | None


def enqueue_jobs(jobs: Sequence[NewJob]) -> Statement[list[JobHandle]]:
    """Put *jobs* in; answers one handle for each, in order."""
    if any(job.placement is not None for job in jobs):
        return enqueue_placed(jobs)
    if _are_alike(jobs):
        return enqueue_alike(jobs) if len(jobs) > 1 else enqueue_one(jobs[0])
    return Statement("enqueue_jobs", _SQL["enqueue_jobs"], _columns(jobs), _handles)


def enqueue_placed(jobs: Sequence[NewJob]) -> Statement[list[JobHandle]]:
    """Put jobs in of which some are for runners; answers one handle for each, in order."""
    parameters = (*_columns(jobs), [job.placement for job in jobs])
    return Statement("enqueue_placed", _SQL["enqueue_placed"], parameters, _handles)


def _columns(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    _check_size(jobs)
    return (
        *terms(jobs),
        sparse([job.unique_key for job in jobs]),
        [job.unique_policy.value for job in jobs],
        sparse([job.concurrency_key for job in jobs]),
        [array_literal(job.tags) for job in jobs],
        [job.meta for job in jobs],
        numbers(sparse([job.parent_id for job in jobs])),
        sparse([job.trace for job in jobs]),
    )


def _check_size(jobs: Sequence[NewJob]) -> None:
    # The server hangs up on a message of a gigabyte, and nobody could tell from that what was wrong.
    if len(jobs) <= ALWAYS_FIT or sum([len(job.args) + len(job.meta) for job in jobs]) <= MOST_BYTES // 4:
        return
    size = sum(len(job.args.encode()) + len(job.meta.encode()) for job in jobs)
    if size > MOST_BYTES:
        msg = (
            f"the arguments and meta of {len(jobs):,} jobs come to {size:,} bytes, where one statement takes "
            f"{MOST_BYTES:,}: enqueue fewer of them at once"
        )
        raise InputInvalid(msg)


def terms(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """Return the columns with which every enqueue of several jobs begins: from kinds to retries."""
    return (
        [job.kind for job in jobs],
        [job.queue for job in jobs],
        [job.args for job in jobs],
        numbers([job.priority for job in jobs]),
        numbers([job.max_attempts for job in jobs]),
        numbers([job.timeout for job in jobs]),
        sparse([job.run_at and job.run_at.isoformat() for job in jobs]),
        numbers(sparse([job.delay for job in jobs])),
        sparse([job.retry for job in jobs]),
    )


def _are_alike(jobs: Sequence[NewJob]) -> bool:
    """Read whether *jobs* have no keys and differ in arguments and traces only."""
    if not jobs or jobs[0].unique_key is not None or jobs[0].concurrency_key is not None:
        return False
    first = _TERMS(jobs[0])
    return all(_TERMS(job) == first for job in jobs[1:])


def enqueue_alike(jobs: Sequence[NewJob]) -> Statement[list[JobHandle]]:
    """Put in jobs without keys that differ in arguments and traces only; answers one handle for each."""
    _check_size(jobs)
    args, traces = [job.args for job in jobs], sparse([job.trace for job in jobs])
    return Statement("enqueue_alike", _SQL["enqueue_alike"], _shared(jobs[0], args, traces), _new)


def enqueue_one(job: NewJob) -> Statement[list[JobHandle]]:
    """Put in one job without keys; answers its handle."""
    return Statement("enqueue_one", _SQL["enqueue_one"], _shared(job, job.args, job.trace), _new)


def _shared(job: NewJob, args: str | list[str], trace: str | list[str | None] | None) -> tuple[Any, ...]:
    return (
        job.kind,
        job.queue,
        args,
        job.priority,
        job.max_attempts,
        job.timeout,
        job.run_at and job.run_at.isoformat(),
        job.delay,
        job.retry,
        array_literal(job.tags),
        job.meta,
        job.parent_id,
        trace,
    )


def _new(rows: Sequence[Row]) -> list[JobHandle]:
    return [JobHandle(row[0]) for row in rows]


def array_literal(values: Sequence[str]) -> str:
    """Return *values* as the text form of a PostgreSQL array."""
    if not values:
        return "{}"
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _handles(rows: Sequence[Row]) -> list[JobHandle]:
    return [JobHandle(row[0], Enqueued(row[1])) for row in rows]


@dataclass(frozen=True, slots=True)
class Reserved:
    """Ids that nobody else will get, and the database's now when they were taken."""

    ids: list[int]
    now: datetime


def reserve_ids(count: int) -> Statement[Reserved]:
    """Take a block of job ids for a COPY."""
    return Statement("reserve_ids", _SQL["reserve_ids"], (count,), _reserved)


def _reserved(rows: Sequence[Row]) -> Reserved:
    ids, now = rows[0]
    return Reserved(msgspec.json.decode(ids), now)


def announce(queues: Sequence[str], best: int, due: datetime | None) -> Statement[list[int]]:
    """Wake workers of *queues* for jobs of priority *best* or worse, and the stager where *due* is near."""
    return Statement("announce", _SQL["announce"], (list(queues), due, best), column)


def announce_room(queues: Sequence[str]) -> Statement[list[int]]:
    """Wake whoever waits for room under the limits of *queues*: there is some."""
    return Statement("announce_room", _SQL["announce_room"], (list(queues),), column)


def announce_room_for_others(
    queues: Sequence[str], kinds: Sequence[str], worker_id: int
) -> Statement[list[int]]:
    """Wake them where a worker of these kinds, which has found nothing more, leaves something to others."""
    parameters = (list(queues), list(kinds), worker_id)
    return Statement("announce_room_for_others", _SQL["announce_room_for_others"], parameters, column)


def mark_keyed(queues: Sequence[str], keys: Sequence[str | None]) -> Statement[list[int]]:
    """Remember which queues have concurrency keys."""
    return Statement("mark_keyed", _SQL["mark_keyed"], (list(queues), list(keys)), column)


def job_end(job_id: int) -> Statement[JobEnd | None]:
    """Look how a job stands; None where there is no such job."""
    return Statement("job_end", _SQL["job_end"], (job_id,), _job_end)


def _job_end(rows: Sequence[Row]) -> JobEnd | None:
    return JobEnd(JobState(rows[0][0]), *rows[0][1:]) if rows else None


def living_jobs(job_ids: Sequence[int]) -> Statement[list[int]]:
    """Look which of these jobs have not ended."""
    return Statement("living_jobs", _SQL["living_jobs"], (numbers(job_ids),), column)
