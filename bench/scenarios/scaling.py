"""G: throughput never falls as slots and processes are added.

What is meant is the throughput of a fleet at work.  Eight processes on two cores open thirty-five connections
when they start and make their plans on each, which is felt in a drain of a hundred thousand jobs, so there
are more jobs here.
"""

from __future__ import annotations

from functools import partial

from bench.catalogue import HOLDFAST, Contestant
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import drain, enqueue
from bench.peers.load import Load
from bench.program import perform

SLOTS = (1, 2, 4, 8, 16, 32, 64)
PROCESSES = (2, 4, 8)
# So many times the jobs of other drains.
LENGTH = 4
FLEETS = [(slots, 1) for slots in SLOTS] + [(SLOTS[-1], processes) for processes in PROCESSES]


def cells() -> list[Cell]:
    """Return one process with more and more slots, then more and more processes with the most slots."""
    return [
        Cell(
            scenario="G",
            name=case(slots, processes).name,
            measure=partial(measure, slots=slots, processes=processes),
            contestants=(HOLDFAST,),
        )
        for slots, processes in FLEETS
    ]


def case(slots: int, processes: int) -> Case:
    """Return the row of a fleet."""
    return Case(scenario="G", name=f"{processes} × {slots} slot{'s' if slots > 1 else ''}")


async def measure(peer: Contestant, scale: Scale, *, slots: int, processes: int) -> Figures:
    """Drain no-ops with a fleet of that size."""
    load = Load(jobs=LENGTH * scale.jobs, slots=slots)
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup")
        await enqueue(cluster, peer, load)
        drained = await drain(cluster, peer, load, processes=processes)
    return {case(slots, processes): drained.rate}
