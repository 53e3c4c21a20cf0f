"""A: single enqueues, committed on return, from one and from eight clients, with and without workers.

Clients are objects with a connection of their own, so nothing of one travels with what is another's.  That
eight calls of one client may share a commit is measured too, and is not the same.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from bench.catalogue import EVERYBODY, FLOOR, FLOORS, Contestant
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.exactly_once import check_exactly_once
from bench.floor import bare
from bench.peers.load import Load
from bench.program import Program, executed_by, perform

WORKERS = 2
# Slow peers are given less, but enough to be measured.
LEAST_SHARE = 0.1
ONE, EIGHT, SHARED = (1, 1), (8, 1), (1, 8)


def cells() -> list[Cell]:
    """Return one client, eight, and eight calls of one, alone and with workers."""
    return [
        Cell(
            scenario="A",
            name=case(shape, listening).name,
            measure=partial(measure, shape=shape, listening=listening),
            contestants=(*EVERYBODY, *floors(shape, listening)),
        )
        for shape in (ONE, EIGHT, SHARED)
        for listening in (False, True)
    ]


def floors(shape: tuple[int, int], listening: bool) -> tuple[Contestant, ...]:
    """Return the floors of a cell; beside workers it is the eight clients for whom there is a bound."""
    if listening:
        return (FLOOR,) if shape == EIGHT else ()
    return () if shape == SHARED else FLOORS


def case(shape: tuple[int, int], listening: bool) -> Case:
    """Return the row of single enqueues; a *shape* is so many clients, with so many calls at once of each."""
    clients, calls = shape
    who = f"{clients} client{'s' if clients > 1 else ''}"
    if calls > 1:
        who = f"{calls} calls at once of one client"
    return Case(
        scenario="A", name=f"single enqueues, {who}, {'workers listen' if listening else 'nobody works'}"
    )


async def measure(peer: Contestant, scale: Scale, *, shape: tuple[int, int], listening: bool) -> Figures:
    """Insert one by one, from as many connections at once as *shape* has calls."""
    clients, calls = shape
    jobs = int(scale.singles * max(LEAST_SHARE, peer.share)) // clients * clients
    load = Load(jobs=jobs, clients=clients, calls=calls)
    with Cluster() as cluster:
        if peer is FLOOR:
            return {case(shape, listening): await asyncio.to_thread(measure_floor, cluster, load, listening)}
        await perform(peer, cluster.dsn, "setup")
        rate = await (measure_with_workers if listening else measure_alone)(peer, cluster, load)
    return {case(shape, listening): rate}


async def measure_alone(peer: Contestant, cluster: Cluster, load: Load) -> float:
    """Return the rate at which jobs get in while nobody works."""
    done = await perform(peer, cluster.dsn, "insert", load)
    return float(done["jobs"] / done["seconds"])


async def measure_with_workers(peer: Contestant, cluster: Cluster, load: Load) -> float:
    """Return the rate at which jobs get in while workers run them at once."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(Program(peer, cluster.dsn, "work", Load()))
            for _ in range(WORKERS)
        ]
        await asyncio.gather(*(worker.go() for worker in workers))
        rate = await measure_alone(peer, cluster, load)
        await executed_by(workers, load.jobs)
        reports = await asyncio.gather(*(worker.stop() for worker in workers))
    check_exactly_once([report["numbers"] for report in reports], load.numbers())
    return rate


def measure_floor(cluster: Cluster, load: Load, listening: bool) -> float:
    """Return the rate of the bare insert-commit loop, alone or beside bare workers."""
    bare.setup(cluster)
    if listening:
        return bare.insert_beside_workers(cluster, load, workers=WORKERS)
    return bare.insert(cluster, load)
