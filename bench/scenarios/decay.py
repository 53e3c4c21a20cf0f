"""D: what is left of the pace on bad days; each case stands beside the same drain on a fresh database."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import asyncpg

from bench.catalogue import EVERYBODY, Ability, Contestant, able
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import drain, enqueue
from bench.exactly_once import check_exactly_once
from bench.peers.load import Load
from bench.program import perform

FRESH = "fresh"
# Jobs beside those that are drained have numbers of their own.
BESIDE = 10_000_000
MONTH = 30 * 86_400.0
QUEUES = 50
PRIORITIES = 10

# The columns of a table that can be written, quoted.
COLUMNS = """
select string_agg(format('"%s"', attname), ', ' order by attnum) from pg_attribute
where attrelid = $1::text::regclass and attnum > 0 and attgenerated = '' and not attisdropped
"""

# Those who get so much done in minutes that dead rows begin to matter.
FAST = tuple(one for one in EVERYBODY if one.share >= 0.5)

Worsen = Callable[[Cluster, Contestant, Load, Scale], Awaitable[None]]


def cells() -> list[Cell]:
    """Return the fresh drain and the days that are worse."""
    return [
        _cell(FRESH, measure_shape, EVERYBODY),
        _cell("1,000,000 finished", partial(measure_worse, worsen=add_history), able(Ability.HISTORY)),
        _cell("1,000,000 scheduled", partial(measure_worse, worsen=add_scheduled), able(Ability.DELAY)),
        _cell("backlog of 1,000,000", partial(measure_worse, worsen=add_backlog, runs_rest=True), EVERYBODY),
        _cell("under an old snapshot", measure_pinned, FAST),
        _cell("49 of 50 queues empty", partial(measure_shape, queues=QUEUES), able(Ability.QUEUES)),
        _cell("priorities mixed", partial(measure_shape, priorities=PRIORITIES), able(Ability.PRIORITIES)),
    ]


def _cell(name: str, measure: Callable[..., Awaitable[Figures]], contestants: tuple[Contestant, ...]) -> Cell:
    measured = partial(measure, name=name)
    return Cell(scenario="D", name=name, measure=measured, contestants=contestants)


def case(name: str) -> Case:
    """Return the row of a day."""
    return Case(scenario="D", name=name, fresh=None if name == FRESH else FRESH)


async def measure_shape(
    peer: Contestant, scale: Scale, *, name: str, queues: int = 1, priorities: int = 1
) -> Figures:
    """Drain jobs of another shape on a fresh database."""
    load = Load(jobs=scale.share(peer), queues=queues, priorities=priorities)
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        await enqueue(cluster, peer, load)
        await settle(cluster)
        drained = await drain(cluster, peer, load)
    return {case(name): drained.pace}


async def measure_worse(
    peer: Contestant, scale: Scale, *, name: str, worsen: Worsen, runs_rest: bool = False
) -> Figures:
    """Drain on a database that *worsen* has filled; what else is in the queue is left there.

    Unless *runs_rest* allows that some of it has begun when the worker is stopped, only the load may run.
    """
    load = Load(jobs=scale.share(peer))
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup")
        await worsen(cluster, peer, load, scale)
        await settle(cluster)
        drained = await drain(cluster, peer, load, leaves_rest=True)
    if not runs_rest:
        check_exactly_once([report["numbers"] for report in drained.reports], load.numbers())
    return {case(name): drained.pace}


async def settle(cluster: Cluster) -> None:
    """Have what was filled in written to disk: a bad day is measured, and not the rush that made it."""
    connection = await cluster.connect()
    await connection.execute("checkpoint", timeout=900)
    await connection.close()


async def add_history(cluster: Cluster, peer: Contestant, load: Load, scale: Scale) -> None:
    """Finish one job, clone what it left behind, then fill the queue."""
    one = Load(jobs=1, first=BESIDE)
    await enqueue(cluster, peer, one)
    drained = await drain(cluster, peer, one)
    connection = await cluster.connect()
    for table, key, value in drained.clones:
        await connection.execute(await clone(connection, table, key, value), scale.mass, timeout=900)
    await connection.close()
    await enqueue(cluster, peer, load)


async def clone(connection: asyncpg.Connection[Any], table: str, key: str, value: str) -> str:
    """Return SQL that copies the last row of *table* as often as its parameter says, with keys by *value*."""
    names = await connection.fetchval(COLUMNS, table)
    values = names.replace(f'"{key}"', value)
    return f"""
        with one as (select * from {table} order by {key} desc limit 1)
        insert into {table} ({names}) overriding system value
        select {values} from one, generate_series(1, $1::integer) n
    """  # noqa: S608 - names come from an adapter of ours


def mass(peer: Contestant, scale: Scale) -> int:
    """Return how many jobs beside the others a peer gets in within minutes: all of them if it can."""
    return max(scale.share(peer), int(scale.mass * min(1.0, 2 * peer.share)))


async def add_scheduled(cluster: Cluster, peer: Contestant, load: Load, scale: Scale) -> None:
    """Enqueue jobs that are due in a month, then fill the queue."""
    await enqueue(cluster, peer, Load(jobs=mass(peer, scale), first=BESIDE, delay=MONTH, chunk=10_000))
    await enqueue(cluster, peer, load)


async def add_backlog(cluster: Cluster, peer: Contestant, load: Load, scale: Scale) -> None:
    """Fill the queue, and then with many times more."""
    await enqueue(cluster, peer, load)
    await enqueue(cluster, peer, Load(jobs=mass(peer, scale), first=BESIDE, chunk=10_000))


async def measure_pinned(peer: Contestant, scale: Scale, *, name: str) -> Figures:
    """Fill and drain over and over while a transaction holds the vacuum horizon; the last drain counts."""
    load = Load(jobs=scale.share(peer))
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup")
        forgotten = await cluster.connect()
        await forgotten.execute("begin isolation level repeatable read")
        await forgotten.execute("select count(*) from pg_class")
        until, first = time.monotonic() + scale.pinned, 0
        while True:
            load = replace(load, first=first)
            await enqueue(cluster, peer, load)
            await settle(cluster)
            drained = await drain(cluster, peer, load)
            first += load.jobs
            if time.monotonic() >= until:
                break
        await forgotten.close()
    return {case(name): drained.pace}
