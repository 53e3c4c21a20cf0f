"""Clients do what they like, workers are killed, frozen and stopped: at rest, all is true that must be.

    SOAK_SEED=7 SOAK_SECONDS=60 make soak

rolls the dice of a long bustle again, whose seed was told when it failed; moments differ all the same.
"""

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.testing import ThrowawayDatabase
from tests.scenarios.bustle import QUEUES, TTL
from tests.scenarios.forker import Fork, Forker, forking
from tests.scenarios.truths import VIEWS, untruths
from tests.scenarios.visitors import Visitor

SLOTS = (2, 5, 10)
VISITORS, LIMIT, KEY_LIMIT = 3, 3, 2
PATIENCE, GLANCE = 60.0, 0.2
DIARY = """
    create table holdfast.diary (
        job_id bigint, attempt integer, what text, at timestamptz default clock_timestamp()
    )
"""
LIVE = """
    select l.job_id, s.paused, s.signals from holdfast.live_jobs l
    left join holdfast.suspensions s on s.run_id = l.job_id
"""


class Crew:
    """Workers, and the misfortunes that befall them; for one that is gone another one comes."""

    def __init__(self, seed: str, forker: Forker, db: ThrowawayDatabase) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - misfortune, not a secret
        self._forker, self._settings = forker, {"dsn": db.dsn, "schema": db.schema}
        self._workers: dict[int, Fork] = {}

    async def keep(self, slots: int) -> None:
        """Have a worker with so many slots at all times."""
        while True:
            worker = await self._forker.start(bustle={**self._settings, "slots": slots})
            self._workers[slots] = worker
            try:
                await asyncio.wait([worker.ended])
            finally:
                await worker.kill()

    async def suffer(self, seconds: float) -> None:
        """Let misfortunes come, each after a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self._dice.uniform(0.2, 1.5))
            slots, befall = (
                self._dice.choice(SLOTS),
                self._dice.choice([Fork.kill, self._freeze, self._stop]),
            )
            if worker := self._workers.get(slots):
                with suppress(ProcessLookupError):
                    await befall(worker)

    async def _freeze(self, worker: Fork) -> None:
        os.kill(worker.pid, signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(0.5, 3.0) * TTL)
        os.kill(worker.pid, signal.SIGCONT)

    async def _stop(self, worker: Fork) -> None:
        os.kill(worker.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([worker.ended])


async def rest(db: ThrowawayDatabase, client: holdfast.Client, operator: Operator) -> list[str]:
    """Give all runs what they wait for until nothing lives; answers what lives all the same, and why."""
    for queue in QUEUES:
        await operator.queues.resume(queue)
    end = time.monotonic() + PATIENCE
    while live := await db.fetch(LIVE):
        if time.monotonic() > end:
            return [f"job {job_id} does not end: {await operator.jobs.why(job_id)}" for job_id, _, _ in live]
        for run_id, is_paused, names in live:
            with suppress(holdfast.StateConflict, holdfast.RunEnded):
                if is_paused:
                    await client.resume(run_id)
                for name in names or []:
                    await client.signal(run_id, name)
        await asyncio.sleep(GLANCE)
    return []


async def bustle(dsn: str, eventually: Any, seed: int, seconds: float) -> str:
    """Let it go on for so many seconds; answers what is not true afterwards."""
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(ThrowawayDatabase(dsn))
        client = await stack.enter_async_context(holdfast.Client(dsn, schema=db.schema))
        crew = Crew(f"{seed} crew", await stack.enter_async_context(forking()), db)
        visitors = [Visitor(f"{seed} visitor {nth}", db, client) for nth in range(VISITORS)]
        operator = Operator(db.database, "test")
        for statement in (DIARY, *VIEWS):
            await db.fetch(statement)
        for queue in QUEUES:
            await operator.queues.key_limit(queue, KEY_LIMIT, create=True)
        await operator.queues.limit("narrow", LIMIT)
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(crew.keep(slots)) for slots in SLOTS]
            await asyncio.gather(crew.suffer(seconds), *(one.stay(seconds) for one in visitors))
            found = await rest(db, client, operator)
            at_rest = await operator.now()
            counted = "select min(counted_at) > $1 from holdfast.queues"
            await eventually(lambda: db.value(counted, at_rest))
            for worker in workers:
                worker.cancel()
        found = found or await untruths(db)
        return "\n".join([f"SOAK_SEED={seed}", *found]) if found else ""


async def test_a_short_bustle_leaves_everything_true(dsn: str, eventually: Any) -> None:
    """A few seconds of it, always with the same dice."""
    assert await bustle(dsn, eventually, seed=1, seconds=3) == ""


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_long_bustle_leaves_everything_true(dsn: str, eventually: Any) -> None:
    """Minutes of it, with other dice every time."""
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"SOAK_SEED={seed}")
    assert await bustle(dsn, eventually, seed, float(os.environ.get("SOAK_SECONDS", "120"))) == ""
