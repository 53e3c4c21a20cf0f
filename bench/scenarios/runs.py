"""W: durable runs: steps that are remembered, runs that fall asleep and wake, timers due at one moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import asyncpg
import msgspec

from bench.catalogue import HOLDFAST, Ability, Contestant, able
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import asked_until, drain, enqueue
from bench.exactly_once import NotExactlyOnce, check_completed, check_exactly_once
from bench.peers.load import Load
from bench.program import Program, executed_by, perform
from bench.scenarios.costs import statements
from bench.scenarios.decay import clone

STEPS = (1, 5, 20)
# Whoever is slower gets fewer runs, so that he does not take all day.
PART_OF_PEERS = 10
PART_OF_PEERS_TIMERS = 20
# Runs that are no part of what is measured have numbers of their own.
BESIDE = 10_000_000
# So many times the time that it should take is left for all runs to fall asleep, and some seconds more.
AMPLE, SLACK = 1.5, 5.0
# Runs whose steps are counted: few, for the server writes all of its statements down.
COUNTED = 200
FEW, MANY = 1, 21
# What a run that sleeps has in the database: tables, and the columns that name the run.
RECORDS = (
    ("jobs", "id"),
    ("live_jobs", "job_id"),
    ("steps", "run_id"),
    ("suspensions", "run_id"),
    ("attempts", "job_id"),
)
# Rows written so far, once the backends of a worker are gone and have told what they did.
ALONE = """
select not exists (
    select from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid())
"""
WRITTEN = "select sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint from pg_stat_user_tables"


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
        Cell(scenario="W", name="costs", measure=measure_costs, contestants=who),
        Cell(scenario="W", name="a million asleep", measure=measure_million, contestants=(HOLDFAST,)),
    ]


def name(steps: int) -> str:
    """Return the name of runs of so many steps."""
    return f"{steps} step{'s' if steps > 1 else ''}"


def case(what: str, unit: str = "runs/s") -> Case:
    """Return a row; whatever is no rate is a cost."""
    return Case(scenario="W", name=what, unit=unit, less_is_better=unit != "runs/s")


TIMERS, ROWS = case("timers due at once"), case("rows written per step", "rows")
ASLEEP, WOKEN = case("fallen asleep"), case("woken by a signal, and done")
IDLE, MEMORY = (
    case("processor share of worker and server while all sleep", "%"),
    case("memory of a worker", "MB"),
)
RATES = (*(case(name(steps)) for steps in STEPS), ASLEEP, WOKEN, TIMERS)


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


async def measure_signals(peer: Contestant, scale: Scale, *, beside: int = 0) -> Figures:
    """Let runs fall asleep until they get a signal, then send it to all; *beside* others that sleep on."""
    load = Load(jobs=share(peer, scale.runs), steps=2, wait="signal")
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        if beside:
            await add_sleepers(cluster, peer, beside)
        await enqueue(cluster, peer, load)
        async with Sleepers.beginning(cluster, peer, load) as sleepers:
            slept = await sleepers.fall_asleep()
            idle = await sleepers.idle(cluster, scale.idle)
            async with Program(peer, cluster.dsn, "signal", load) as sender:
                began = time.monotonic()
                await sender.go()
                await sender.hear("signalled")
                resumed = await sleepers.end(leaves_rest=beside > 0) - began
    figures = {
        ASLEEP: load.jobs / slept,
        WOKEN: load.jobs / resumed,
        IDLE: idle * 100,
        MEMORY: sleepers.rss / 1e6,
    }
    return {beside_million(one) if beside else one: value for one, value in figures.items()}


def beside_million(fresh: Case) -> Case:
    """Return the row of the same figure beside a million of others."""
    return msgspec.structs.replace(fresh, name=f"{fresh.name}, beside 1,000,000 asleep", fresh=fresh.name)


async def measure_million(peer: Contestant, scale: Scale) -> Figures:
    """Do the same beside a million runs that sleep on."""
    return await measure_signals(peer, scale, beside=scale.mass)


async def add_sleepers(cluster: Cluster, peer: Contestant, count: int) -> None:
    """Let one run fall asleep, and clone it: it waits for a signal that nobody sends."""
    load = Load(jobs=1, first=BESIDE, steps=2, wait="signal")
    await enqueue(cluster, peer, load)
    async with Sleepers.beginning(cluster, peer, load) as sleepers:
        await sleepers.fall_asleep()
    connection = await cluster.connect()
    for table, key in RECORDS:
        await connection.execute(
            await clone(connection, f"holdfast.{table}", key, "1000000000 + n"), count, timeout=900
        )
        await connection.execute(f"vacuum analyze holdfast.{table}", timeout=900)
    await connection.close()


async def measure_timers(peer: Contestant, scale: Scale) -> Figures:
    """Let runs sleep until the same moment; what counts begins then."""
    load = Load(jobs=share(peer, scale.timers, PART_OF_PEERS_TIMERS), steps=2, wait="timer")
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", load)
        pace = await warm_up(cluster, peer, share(peer, scale.runs))
        await enqueue(cluster, peer, load)
        load = replace(load, wake_at=time.time() + SLACK + AMPLE * load.jobs / pace)
        async with Sleepers.beginning(cluster, peer, load) as sleepers:
            await sleepers.fall_asleep()
            began = time.monotonic() + load.wake_at - time.time()
            if began < time.monotonic():
                raise NotExactlyOnce("the timers came due before all runs slept")
            seconds = await sleepers.end() - began
    return {TIMERS: load.jobs / seconds}


async def measure_costs(peer: Contestant, scale: Scale) -> Figures:  # noqa: ARG001 - a count needs no scale
    """Count what a step writes: the difference that twenty more of them make."""
    with Cluster(logs_statements=True) as cluster:
        await perform(peer, cluster.dsn, "setup", Load(steps=1))
        few, many = [await counts(cluster, peer, steps) for steps in (FEW, MANY)]
    rows, told, wal = ((more - less) / COUNTED / (MANY - FEW) for less, more in zip(few, many, strict=True))
    return {
        ROWS: rows,
        case("statements per 100 steps", "statements"): told * 100,
        case("WAL per step", "B"): wal,
    }


async def counts(cluster: Cluster, peer: Contestant, steps: int) -> tuple[float, float, float]:
    """Return the rows, the statements and the bytes of WAL that some runs of so many steps took."""
    load = Load(jobs=COUNTED, first=steps * BESIDE, steps=steps)
    await enqueue(cluster, peer, load)
    look = await cluster.connect()
    told, rows = statements(cluster), await written(look)
    drained = await drain(cluster, peer, load)
    told, rows = statements(cluster) - told, await written(look) - rows
    await look.close()
    return rows, told, drained.wal_bytes * len(load.marks())


async def written(look: asyncpg.Connection[Any]) -> int:
    """Return how many rows were written so far."""
    await asked_until(look, ALONE, True)
    return int(await look.fetchval(WRITTEN))


async def warm_up(cluster: Cluster, peer: Contestant, runs: int) -> float:
    """Return the pace of runs that do not wait, so that the moment can be set to which all others sleep."""
    load = Load(jobs=runs, first=BESIDE, steps=2)
    await enqueue(cluster, peer, load)
    drained = await drain(cluster, peer, load)
    return drained.rate / load.steps


class Sleepers:
    """A worker whose runs wait before their last step; use it as ``async with Sleepers.beginning(...)``."""

    def __init__(self, program: Program, look: asyncpg.Connection[Any], load: Load) -> None:
        self._program, self._look, self._load = program, look, load
        self._before = (0, 0)
        self.rss = 0

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

    async def idle(self, cluster: Cluster, seconds: float) -> float:
        """Return the share of a processor that worker and server take while all runs sleep."""
        before = self._program.processor_seconds() + cluster.processor_seconds()
        await asyncio.sleep(seconds)
        after = self._program.processor_seconds() + cluster.processor_seconds()
        return (after - before) / seconds

    async def end(self, *, leaves_rest: bool = False) -> float:
        """Wait until every run has ended, and hold the record against the load; answers when that was.

        The moment is that of the monotonic clock.  With *leaves_rest* others sleep on.  Raises
        `NotExactlyOnce`.
        """
        await executed_by([self._program], len(self._load.marks()))
        if leaves_rest:
            await asked_until(self._look, self._program.completed, self._before[1] + self._load.jobs)
        else:
            await asked_until(self._look, self._program.unfinished, False)
        ended = time.monotonic()
        self.rss = self._program.peak_memory()
        report = await self._program.stop()
        check_exactly_once([report["numbers"]], self._load.marks())
        completed = await self._count(self._program.completed) - self._before[1]
        check_completed(completed, self._load.jobs)
        return ended

    async def _count(self, question: str) -> int:
        return int(await self._look.fetchval(question))
