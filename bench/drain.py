"""A drain: workers run a backlog empty, and everything about it is measured and verified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import asyncpg

from bench.catalogue import Contestant
from bench.cluster import Cluster
from bench.exactly_once import check_at_most_once, check_completed, check_exactly_once
from bench.peers.load import Load
from bench.program import AdapterFailed, Message, Program, executed_by, perform

# How often the database is asked whether all jobs have ended, once all have begun.
LOOK_EVERY = 0.003
# When it is given up that the database will ever show it, in seconds.
LONGEST_WAIT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain came to.

    *rate* counts from the first handler's start to the moment when the database shows every job ended;
    *pace* is the rate at which handlers began.  The costs are per job; *rss* is of the largest worker
    process.
    """

    rate: float
    pace: float
    worker_us: float
    server_us: float
    wal_bytes: float
    rss: int
    reports: Sequence[Message]
    clones: Sequence[tuple[str, str, str]]


async def enqueue(cluster: Cluster, peer: Contestant, load: Load) -> Message:
    """Fill a queue by the peer's bulk enqueue."""
    return await perform(peer, cluster.dsn, "enqueue", load)


async def drain(
    cluster: Cluster, peer: Contestant, load: Load, *, processes: int = 1, leaves_rest: bool = False
) -> Drained:
    """Run the load's jobs with *processes* workers; raises `NotExactlyOnce`, `AdapterFailed`.

    With *leaves_rest* the queue holds more than the load: the drain ends when as many jobs have begun, and
    only *pace* means something.
    """
    async with AsyncExitStack() as stack:
        look = await cluster.connect()
        stack.push_async_callback(look.close)
        programs = [
            await stack.enter_async_context(Program(peer, cluster.dsn, "work", load))
            for _ in range(processes)
        ]
        completed = await look.fetchval(programs[0].completed) if load.steps else 0
        before = await costs(cluster, programs, look)
        await asyncio.gather(*(program.go() for program in programs))
        await executed_by(programs, len(load.marks()))
        if not leaves_rest:
            await asked_until(look, programs[0].unfinished, False)
        ended = time.monotonic_ns()
        after = await costs(cluster, programs, look)
        rss = max(program.peak_memory() for program in programs)
        if load.steps:
            check_completed(await look.fetchval(programs[0].completed) - completed, load.jobs)
        reports = await asyncio.gather(*(program.stop() for program in programs))
    executed = [report["numbers"] for report in reports]
    check_at_most_once(executed) if leaves_rest else check_exactly_once(executed, load.marks())
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return _drained(reports, ended, spent, rss, programs[0].clones)


async def asked_until(look: asyncpg.Connection[Any], question: str, answer: object) -> None:
    """Ask the database until it gives this answer; raises `AdapterFailed` when that takes too long."""
    begun = asked = time.monotonic()
    while (last := await _asked(look, question)) != answer:
        if asked - begun > LONGEST_WAIT:
            msg = f"the database still said {last} and not {answer} after {LONGEST_WAIT:g} s to: {question}"
            raise AdapterFailed(msg)
        # A question that costs much is asked less often: it must not become the load.
        await asyncio.sleep(max(LOOK_EVERY, 4 * (time.monotonic() - asked)))
        asked = time.monotonic()


async def _asked(look: asyncpg.Connection[Any], question: str) -> object:
    try:
        return await look.fetchval(question, timeout=LONGEST_WAIT)
    except TimeoutError:
        msg = f"the database had no answer after {LONGEST_WAIT:g} s to: {question}"
        raise AdapterFailed(msg) from None


async def costs(
    cluster: Cluster, programs: Sequence[Program], look: asyncpg.Connection[Any]
) -> tuple[float, float, float]:
    """Return what was spent so far: processor seconds of workers and of the server, bytes of WAL."""
    workers = sum(program.processor_seconds() for program in programs)
    wal = await look.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")
    return workers, cluster.processor_seconds(), float(wal)


def _drained(
    reports: Sequence[Message],
    ended: int,
    spent: Sequence[float],
    rss: int,
    clones: Sequence[tuple[str, str, str]],
) -> Drained:
    jobs = sum(len(report["numbers"]) for report in reports)
    # A worker may have got nothing at all.
    working = [report for report in reports if report["numbers"]]
    first = min(report["first"] for report in working)
    last = max(report["last"] for report in working)
    workers, server, wal = (cost / jobs for cost in spent)
    return Drained(
        rate=jobs / (ended - first) * 1e9,
        pace=(jobs - 1) / max(last - first, 1) * 1e9,
        worker_us=workers * 1e6,
        server_us=server * 1e6,
        wal_bytes=wal,
        rss=rss,
        reports=reports,
        clones=clones,
    )
