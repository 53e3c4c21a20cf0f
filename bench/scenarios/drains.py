"""B, with A and F beside it: fill a queue in bulk, run it empty, and count what that cost."""

from __future__ import annotations

import asyncio
from functools import partial

from bench.catalogue import EVERYBODY, FLOOR, Ability, Contestant, able
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import Drained, drain, enqueue
from bench.floor import bare
from bench.peers.load import Load
from bench.program import perform

# A handler that sleeps or needs a thread is slower than an empty one: fewer of them take as long.
PART_OF_SLOW_KINDS = 0.2
KINDS = {"ms": "handlers that take 1 ms", "sync": "sync handlers"}


def cells() -> list[Cell]:
    """Return the drains: one and two processes, small and large payloads, other handlers."""
    plain = [
        Cell(
            scenario="B",
            name=name(processes, payload),
            measure=partial(measure, processes=processes, payload=payload),
            contestants=(*EVERYBODY, FLOOR),
            is_quick=(processes, payload) == (1, 50),
        )
        for processes in (1, 2)
        for payload in (50, 2000)
    ]
    other = [
        Cell(
            scenario="B",
            name=f"drain, {KINDS[kind]}",
            measure=partial(measure_kind, kind=kind),
            contestants=able(Ability.SYNC) if kind == "sync" else EVERYBODY,
        )
        for kind in KINDS
    ]
    return plain + other


def name(processes: int, payload: int) -> str:
    """Return the name of a drain."""
    size = "50 B" if payload == 50 else f"{payload // 1000} kB"
    return f"drain, {processes} process{'es' if processes > 1 else ''}, {size}"


async def measure(peer: Contestant, scale: Scale, *, processes: int, payload: int) -> Figures:
    """Fill and drain a queue of no-ops."""
    load = Load(jobs=scale.share(peer), payload=payload)
    with Cluster() as cluster:
        if peer is FLOOR:
            return await asyncio.to_thread(measure_floor, cluster, load, processes)
        await perform(peer, cluster.dsn, "setup", load)
        filled = await enqueue(cluster, peer, load)
        drained = await drain(cluster, peer, load, processes=processes)
    figures = {Case(scenario="B", name=name(processes, payload)): drained.rate}
    if processes == 1:
        figures[bulk_case(payload)] = filled["jobs"] / filled["seconds"]
    if (processes, payload) == (1, 50):
        figures |= costs(drained)
    return figures


async def measure_kind(peer: Contestant, scale: Scale, *, kind: str) -> Figures:
    """Drain a queue of handlers that are no empty coroutines."""
    jobs = max(1000, int(scale.share(peer) * PART_OF_SLOW_KINDS) // 1000 * 1000)
    load = Load(jobs=jobs, kind=kind)
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        await enqueue(cluster, peer, load)
        drained = await drain(cluster, peer, load)
    return {Case(scenario="B", name=f"drain, {KINDS[kind]}"): drained.rate}


def measure_floor(cluster: Cluster, load: Load, clients: int) -> Figures:
    """Do the same by bare SQL: COPY in, claims and finishes by pgbench."""
    bare.setup(cluster)
    filled = bare.copy_in(cluster, load)
    figures = {
        Case(scenario="B", name=name(clients, load.payload)): bare.drain(cluster, load, clients=clients)
    }
    if clients == 1:
        figures[bulk_case(load.payload)] = filled
    return figures


def bulk_case(payload: int) -> Case:
    """Return the row of the bulk enqueue that fills a drain."""
    return Case(scenario="A", name=f"bulk enqueue, {'50 B' if payload == 50 else '2 kB'}")


def costs(drained: Drained) -> Figures:
    """Return what a job of a drain cost."""
    return {
        cost_case("worker's processor time per job", "µs"): drained.worker_us,
        cost_case("PostgreSQL's processor time per job", "µs"): drained.server_us,
        cost_case("WAL per job", "B"): drained.wal_bytes,
        cost_case("memory of a worker", "MB"): drained.rss / 1e6,
    }


def cost_case(name: str, unit: str) -> Case:
    """Return a row of costs."""
    return Case(scenario="F", name=name, unit=unit, less_is_better=True)
