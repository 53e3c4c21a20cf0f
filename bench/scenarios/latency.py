"""C: how long it takes from the commit of an enqueue to the start of its handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from bench.catalogue import EVERYBODY, FLOOR_IN_PYTHON, Contestant
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.exactly_once import NotExactlyOnce, check_at_most_once
from bench.figures import percentile
from bench.peers.load import Load
from bench.program import Message, Program, executed_by, perform

WARM_UP = 10
# Numbers of the jobs that make up the load in the background.
BACKGROUND = 10_000_000
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
GAPS = (0.010, 0.030)
# How much of the flow is measured before the half of it begins, and the stream's chunks per second.
FLOW_PART = 0.2
CHUNKS = 100
# Less than this share of the pace asked for is no half load any more.
HELD = 0.95


class PaceNotHeld(Exception):
    """The load in the background was less than the half that it should have been."""


def cells() -> list[Cell]:
    """Return the latencies of an idle and of a half loaded system."""
    return [
        Cell(
            scenario="C",
            name="idle",
            measure=partial(measure, at_half_load=False),
            contestants=(*EVERYBODY, FLOOR_IN_PYTHON),
            is_quick=True,
        ),
        Cell(
            scenario="C",
            name="half load",
            measure=partial(measure, at_half_load=True),
            contestants=EVERYBODY,
        ),
    ]


async def measure(peer: Contestant, scale: Scale, *, at_half_load: bool) -> Figures:
    """Insert probes one by one, at gaps of 10 to 30 ms, while one worker listens."""
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup")
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(Program(peer, cluster.dsn, "work", Load(latency=True)))
            await worker.go()
            probes = Load(jobs=WARM_UP, gap_from=GAPS[0], gap_to=GAPS[1], latency=True)
            await perform(peer, cluster.dsn, "insert", probes)
            await executed_by([worker], WARM_UP)
            probes = replace(probes, first=WARM_UP, jobs=scale.probes)
            if at_half_load:
                flow = await measured_flow(peer, cluster, worker, int(scale.share(peer) * FLOW_PART))
                producer = await stack.enter_async_context(stream(peer, cluster, worker, flow / 2))
            already = worker.executed
            inserted = await perform(peer, cluster.dsn, "insert", probes)
            await executed_by([worker], already + scale.probes)
            if at_half_load:
                await asyncio.sleep(1.0)
                # Before the worker ends: without one a late producer would make up for its delay.
                check_pace(flow / 2, await producer.stop())
            report = await worker.stop()
    check_at_most_once([report["numbers"]])
    return figures(waits(inserted, report), "half load" if at_half_load else "idle")


async def measured_flow(peer: Contestant, cluster: Cluster, worker: Program, jobs: int) -> float:
    """Return how many jobs per second get in and done when both happen at once."""
    before = worker.executed
    load = Load(jobs=jobs, first=BACKGROUND, chunk=min(jobs, 500))
    async with Program(peer, cluster.dsn, "enqueue", load) as producer:
        # How long the producer takes to start says nothing about the queue.
        began = time.monotonic()
        await producer.go()
        await executed_by([worker], before + jobs)
        seconds = time.monotonic() - began
    return jobs / seconds


@asynccontextmanager
async def stream(peer: Contestant, cluster: Cluster, worker: Program, rate: float) -> AsyncIterator[Program]:
    """Give a producer that enqueues *rate* jobs per second, in at most a hundred chunks a second."""
    chunk = max(1, int(rate / CHUNKS))
    load = Load(jobs=BACKGROUND, first=2 * BACKGROUND, chunk=chunk, rate=rate)
    async with Program(peer, cluster.dsn, "enqueue", load) as producer:
        before = worker.executed
        await producer.go()
        await executed_by([worker], before + int(rate / 2))
        yield producer


def check_pace(asked: float, done: Message) -> None:
    """Hold what a producer got in against the jobs per second *asked*; raises `PaceNotHeld`."""
    held = done["jobs"] / done["seconds"]
    if held < HELD * asked:
        msg = f"{held:,.0f} jobs a second got in where half load asked for {asked:,.0f}: {held / asked:.1%}"
        raise PaceNotHeld(msg)


def waits(inserted: Message, report: Message) -> Sequence[float]:
    """Return the milliseconds from each probe's commit to the start of its handler.

    Raises `NotExactlyOnce` where one of them did not begin before the worker was stopped.
    """
    began = dict(zip(report["numbers"], report["began"], strict=True))
    lost = sum(number not in began for number, _ in inserted["committed"])
    if lost:
        msg = f"{lost} of {len(inserted['committed'])} probes had not begun when the worker was stopped"
        raise NotExactlyOnce(msg)
    # A handler may begin before the client hears of its own commit: that is no wait.
    return [max(0, began[number] - committed) / 1e6 for number, committed in inserted["committed"]]


def figures(found: Sequence[float], system: str) -> Figures:
    """Return the percentiles of what was found."""
    return {case(system, name): percentile(found, share) for name, share in SHARES.items()}


def case(system: str, name: str) -> Case:
    """Return the row of a percentile."""
    return Case(scenario="C", name=f"{system}, {name}", unit="ms", less_is_better=True)
