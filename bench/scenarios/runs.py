"""W: durable runs: steps that are remembered, runs that fall asleep and wake, timers due at one moment."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import asyncpg

from bench.catalogue import HOLDFAST, Ability, Contestant, able
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import asked_until, drain, enqueue
from bench.exactly_once import NotExactlyOnce, check_completed, check_exactly_once
from bench.peers.load import Load
from bench.program import Program, executed_by, perform

STEPS = (1, 5, 20)
# Whoever is slower gets fewer runs, so that he does not take all day.
PART_OF_PEERS = 10
PART_OF_PEERS_TIMERS = 20
# The runs that show how fast the timers can be set; they are no part of what is measured.
WARM_UP = 200
BESIDE = 10_000_000
SLACK = 5.0


def cells() -> list[Cell]:
    """Return the runs of steps, the sleepers and the burst of timers."""
    who = able(Ability.RUNS)
    runs = [
        Cell(scenario="W", name=name(steps), measure=partial(measure_steps, steps=steps), contestants=who)
        for steps in STEPS
    ]
    return [
        *runs,
        Cell(scenario="W", name="signals", measure=measure_signals, contestants=who),
        Cell(scenario="W", name="timers", measure=measure_timers, contestants=who),
    ]


def name(steps: int) -> str:
    """Return the name of runs of so many steps."""
    return f"{steps} step{'s' if steps > 1 else ''}"


def case(what: str, unit: str = "runs/s") -> Case:
    """Return a row; whatever is no rate is a cost."""
    return Case(scenario="W", name=what, unit=unit, less_is_better=unit != "runs/s")


def share(peer: Contestant, runs: int, part: int = PART_OF_PEERS) -> int:
    """Return how many of the *runs* a contestant gets."""
    return runs if peer is HOLDFAST else max(100, runs // part)


async def measure_steps(peer: Contestant, scale: Scale, *, steps: int) -> Figures:
    """Run runs of steps that do nothing, one after the other."""
    load = Load(jobs=share(peer, scale.runs), steps=steps)
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        await enqueue(cluster, peer, load)
        drained = await drain(cluster, peer, load)
    what = name(steps)
    return {
        case(what): drained.rate / steps,
        case(f"{what}: worker's processor time per run", "µs"): drained.worker_us * steps,
        case(f"{what}: PostgreSQL's processor time per run", "µs"): drained.server_us * steps,
    }


async def measure_signals(peer: Contestant, scale: Scale) -> Figures:
    """Let runs fall asleep until they get a signal, then send it to all of them."""
    load = Load(jobs=share(peer, scale.runs), steps=2, wait="signal")
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        await enqueue(cluster, peer, load)
        async with Sleepers.beginning(cluster, peer, load) as sleepers:
            slept = await sleepers.fall_asleep()
            async with Program(peer, cluster.dsn, "signal", load) as sender:
                began = time.monotonic()
                await sender.go()
                await sender.hear("signalled")
                resumed = await sleepers.end() - began
    return {
        case("fallen asleep"): load.jobs / slept,
        case("woken by a signal, and done"): load.jobs / resumed,
    }


async def measure_timers(peer: Contestant, scale: Scale) -> Figures:
    """Let runs sleep until the same moment; what counts begins then."""
    load = Load(jobs=share(peer, scale.timers, PART_OF_PEERS_TIMERS), steps=2, wait="timer")
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        pace = await warm_up(cluster, peer)
        await enqueue(cluster, peer, load)
        load = replace(load, wake_at=time.time() + SLACK + 2 * load.jobs / pace)
        async with Sleepers.beginning(cluster, peer, load) as sleepers:
            await sleepers.fall_asleep()
            began = time.monotonic() + load.wake_at - time.time()
            if began < time.monotonic():
                raise NotExactlyOnce("the timers came due before all runs slept")
            seconds = await sleepers.end() - began
    return {case("timers due at once"): load.jobs / seconds}


async def warm_up(cluster: Cluster, peer: Contestant) -> float:
    """Return the pace of runs that do not wait, so that the moment can be set to which all others sleep."""
    load = Load(jobs=WARM_UP, first=BESIDE, steps=2)
    await enqueue(cluster, peer, load)
    drained = await drain(cluster, peer, load)
    return drained.rate / load.steps


class Sleepers:
    """A worker whose runs wait before their last step; use it as ``async with Sleepers.beginning(...)``."""

    def __init__(self, program: Program, look: asyncpg.Connection[Any], load: Load) -> None:
        self._program, self._look, self._load = program, look, load
        self._before = (0, 0)

    @classmethod
    @asynccontextmanager
    async def beginning(cls, cluster: Cluster, peer: Contestant, load: Load) -> AsyncIterator[Self]:
        """Start the worker; it is ready, and told to go by `fall_asleep`."""
        look = await cluster.connect()
        try:
            async with Program(peer, cluster.dsn, "work", load) as program:
                yield cls(program, look, load)
        finally:
            await look.close()

    async def fall_asleep(self) -> float:
        """Wait until every run waits; answers the seconds that took."""
        self._before = await self._count(self._program.asleep), await self._count(self._program.completed)
        began = time.monotonic()
        await self._program.go()
        await executed_by([self._program], self._load.jobs)
        await asked_until(self._look, self._program.asleep, self._before[0] + self._load.jobs)
        return time.monotonic() - began

    async def end(self) -> float:
        """Wait until every run has ended, and hold the record against the load; answers when that was.

        Raises `NotExactlyOnce`; the moment is that of the monotonic clock.
        """
        await executed_by([self._program], len(self._load.marks()))
        await asked_until(self._look, self._program.unfinished, False)
        ended = time.monotonic()
        report = await self._program.stop()
        check_exactly_once([report["numbers"]], self._load.marks())
        completed = await self._count(self._program.completed) - self._before[1]
        check_completed(completed, self._load.jobs)
        return ended

    async def _count(self, question: str) -> int:
        return int(await self._look.fetchval(question))
