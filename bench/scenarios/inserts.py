"""A: single enqueues, committed on return, from one and from eight clients, with and without workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from bench.catalogue import EVERYBODY, FLOOR, Contestant
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.exactly_once import check_exactly_once
from bench.floor import bare
from bench.peers.load import Load
from bench.program import Program, executed_by, perform

WORKERS = 2
# Slow peers are given less, but enough to be measured.
LEAST_SHARE = 0.1


def cells() -> list[Cell]:
    """Return one and eight clients, alone and with workers."""
    return [
        Cell(
            scenario="A",
            name=case(clients, listening).name,
            measure=partial(measure, clients=clients, listening=listening),
            contestants=EVERYBODY if listening else (*EVERYBODY, FLOOR),
        )
        for clients in (1, 8)
        for listening in (False, True)
    ]


def case(clients: int, listening: bool) -> Case:
    """Return the row of single enqueues."""
    who = f"{clients} client{'s' if clients > 1 else ''}"
    return Case(
        scenario="A", name=f"single enqueues, {who}, {'workers listen' if listening else 'nobody works'}"
    )


async def measure(peer: Contestant, scale: Scale, *, clients: int, listening: bool) -> Figures:
    """Insert one by one, from *clients* connections at once."""
    jobs = int(scale.singles * max(LEAST_SHARE, peer.share)) // clients * clients
    load = Load(jobs=jobs, clients=clients)
    with Cluster() as cluster:
        if peer is FLOOR:
            return {case(clients, listening): await asyncio.to_thread(measure_floor, cluster, load)}
        await perform(peer, cluster.dsn, "setup")
        rate = await (measure_with_workers if listening else measure_alone)(peer, cluster, load)
    return {case(clients, listening): rate}


async def measure_alone(peer: Contestant, cluster: Cluster, load: Load) -> float:
    """Return the rate at which jobs get in while nobody works."""
    done = await perform(peer, cluster.dsn, "insert", load)
    return float(done["jobs"] / done["seconds"])


async def measure_with_workers(peer: Contestant, cluster: Cluster, load: Load) -> float:
    """Return the rate at which jobs get in while workers run them at once."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(Program(peer, cluster.dsn, "work", load)) for _ in range(WORKERS)
        ]
        await asyncio.gather(*(worker.go() for worker in workers))
        rate = await measure_alone(peer, cluster, load)
        await executed_by(workers, load.jobs)
        reports = await asyncio.gather(*(worker.stop() for worker in workers))
    check_exactly_once([report["numbers"] for report in reports], load.numbers())
    return rate


def measure_floor(cluster: Cluster, load: Load) -> float:
    """Return the rate of the bare insert-commit loop."""
    bare.setup(cluster)
    return bare.insert(cluster, load)
