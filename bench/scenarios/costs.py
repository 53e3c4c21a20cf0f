"""F: what a job costs in statements, and what a worker costs that has nothing to do.

Processor time, WAL and memory come with the drains; statements need a server that logs each of them.
"""

from __future__ import annotations

import asyncio
import re

from bench.catalogue import EVERYBODY, Contestant
from bench.cell import Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import drain, enqueue
from bench.peers.load import Load
from bench.program import Program, executed_by, perform
from bench.scenarios.drains import cost_case

JOBS = 3000
# A statement of the simple protocol, or the execution of a prepared one.
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*):")


def cells() -> list[Cell]:
    """Return the counts of statements."""
    return [
        Cell(scenario="F", name="statements", measure=measure_statements, contestants=EVERYBODY),
        Cell(scenario="F", name="idle", measure=measure_idle, contestants=EVERYBODY),
    ]


async def measure_statements(peer: Contestant, scale: Scale) -> Figures:
    """Count what a server is told during a drain."""
    load = Load(jobs=min(JOBS, scale.share(peer)))
    with Cluster(logs_statements=True) as cluster:
        await perform(peer, cluster.dsn, "setup")
        await enqueue(cluster, peer, load)
        before = statements(cluster)
        await drain(cluster, peer, load)
        # The drain's own questions whether all has ended are a handful; they are counted too.
        told = statements(cluster) - before
    return {cost_case("statements per 100 jobs", "statements"): told / load.jobs * 100}


async def measure_idle(peer: Contestant, scale: Scale) -> Figures:
    """Count what a server is told by a worker that has nothing to do, and what that takes of a processor."""
    with Cluster(logs_statements=True) as cluster:
        await perform(peer, cluster.dsn, "setup")
        async with Program(peer, cluster.dsn, "work", Load()) as worker:
            await worker.go()
            await perform(peer, cluster.dsn, "insert", Load(jobs=10))
            await executed_by([worker], 10)
            await asyncio.sleep(scale.idle / 2)
            before = statements(cluster), worker.processor_seconds()
            await asyncio.sleep(scale.idle)
            after = statements(cluster), worker.processor_seconds()
            await worker.stop()
    told, busy = ((late - early) / scale.idle for early, late in zip(before, after, strict=True))
    return {
        cost_case("statements per second of an idle worker", "statements"): told,
        cost_case("processor share of an idle worker", "%"): busy * 100,
    }


def statements(cluster: Cluster) -> int:
    """Return how many statements the server's log has."""
    return len(STATEMENT.findall(cluster.log.read_text("utf-8", errors="replace")))
