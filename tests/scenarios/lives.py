"""A world in which a run lives while its worker dies, and what must be true of it afterwards."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.scenarios.doom import Death, Place, traced
from tests.scenarios.forker import Fork, Forker
from tests.scenarios.fulfilment import BOOKINGS, OUTCOMES, RESULT, Shop, fulfil

PATIENCE = 40.0
GLANCE = 0.1
# What a life leaves behind; the rest, such as partitions, is made only once for each world.
CLEAR = [
    "delete from holdfast.live_jobs",
    "delete from holdfast.jobs",
    "delete from holdfast.finished_jobs",
    "delete from holdfast.attempts",
    "delete from holdfast.steps",
    "delete from holdfast.signals",
    "delete from holdfast.suspensions",
    "delete from holdfast.activities",
    "delete from holdfast.workers",
    "delete from holdfast.bookings",
    "update holdfast.leader set expires_at = '-infinity', holder = ''",
]


@dataclass
class Life:
    """A run from its beginning to its end: whether the death has come, what was sent, what is wrong."""

    died: bool
    places: list[Place]
    problems: list[str]


class World:
    """A schema of its own, with one run at a time: to make a schema costs more than to live in it."""

    def __init__(self, db: ThrowawayDatabase, client: holdfast.Client, forker: Forker, folder: Path) -> None:
        self._db, self._client, self._forker = db, client, forker
        self._diary, self._trace = folder / f"{db.schema}.diary", folder / f"{db.schema}.trace"
        self._run_id = 0

    async def begin(self) -> Life:
        """Live the first life, with no death in it."""
        await self._db.fetch("create table holdfast.bookings (what text)")
        await self.live(None)
        return await self.live(None)

    async def live(self, death: Death | None) -> Life:
        """Let a run go to its end, with a worker that dies at *death* and one that goes on."""
        await self._clear()
        self._run_id = (await self._client.enqueue(fulfil.job(Shop(self._db.schema, str(self._diary))))).id
        await self._client.signal(self._run_id, "early", "bird")
        async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
            tasks.create_task(self._approve())
            doomed = await self._start(stack, self._trace, death)
            end = tasks.create_task(self._end())
            await asyncio.wait((end, doomed.ended), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                await self._until("select coalesce(max(expires_at) < now(), true) from holdfast.workers")
                await self._start(stack, self._trace.with_suffix(".heir"), None)
                await end
            died = doomed.ended.done() and doomed.ended.result() == -signal.SIGKILL
        return Life(died, traced(self._trace), await self._problems())

    async def _clear(self) -> None:
        for statement in CLEAR:
            await self._db.fetch(statement)
        for file in (self._diary, self._trace):
            file.unlink(missing_ok=True)

    async def _start(self, stack: AsyncExitStack, trace: Path, death: Death | None) -> Fork:
        fork = await self._forker.start(
            dsn=self._db.dsn, schema=self._db.schema, trace=str(trace), death=death and str(death)
        )
        stack.push_async_callback(fork.kill)
        return fork

    async def _approve(self) -> None:
        await self._until("select true from holdfast.suspensions where 'approved' = any (signals)")
        await self._client.signal(self._run_id, "approved", {"by": "ada"})

    async def _end(self) -> None:
        await self._until("select count(*) = 0 from holdfast.live_jobs")

    async def _until(self, question: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._db.value(question):  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(GLANCE)

    # --- what must be true

    async def _problems(self) -> list[str]:
        expected = {
            "result": (json.loads(await self._db.value(_RESULT, self._run_id) or "null"), RESULT),
            "bookings": (await self._column("select what from holdfast.bookings order by 1"), BOOKINGS),
            "outcomes": (await self._db.fetch(_OUTCOMES), OUTCOMES),
            "unread or unended": (await self._column(_LEFT), []),
        }
        problems = [f"{what}: {found}" for what, (found, right) in expected.items() if found != right]
        return problems + await self._untruths()

    async def _untruths(self) -> list[str]:
        """Compare the log of step calls with the calls that were made, and with what is remembered."""
        calls = Counter(tuple(json.loads(line)) for line in self._diary.read_text().splitlines())
        lines = await self._db.fetch(_LINES)
        logged = Counter((run, attempt, step) for run, attempt, step, _ in lines)
        cut_off = set(await self._db.fetch(_CUT_OFF))
        problems = [f"logged but never called: {line}" for line in logged - calls]
        for (run, attempt, step), missing in (calls - logged).items():
            if missing > 1 or (run, attempt) not in cut_off:
                problems.append(f"called {missing} times without a line: {(run, attempt, step)}")
        for run, step, attempt, state in await self._db.fetch(_STEPS):
            told = [(line[1], line[3]) for line in lines if (line[0], line[2]) == (run, step)]
            ends = [(attempt, state)]
            if [one for one in told if one[1] != "retrying"] != ends or told[-1:] != ends:
                problems.append(f"step {step} is {state} by attempt {attempt}, the log says {told}")
            if late := [one for one in calls if (one[0], one[2]) == (run, step) and one[1] > attempt]:
                problems.append(f"called again although it was remembered: {late}")
        return problems

    async def _column(self, question: str) -> list[Any]:
        return [row[0] for row in await self._db.fetch(question)]


_RESULT = "select result::text from holdfast.finished_jobs where job_id = $1"
_OUTCOMES = """
    select j.kind, f.outcome from holdfast.jobs j left join holdfast.finished_jobs f on f.job_id = j.id
    order by 1, 2
"""
_LEFT = """
    select 'signal ' || name from holdfast.signals where consumed_at is null or place is null
    union all select 'suspension of ' || run_id from holdfast.suspensions
    union all select name || ' is ' || state from holdfast.steps where state not in ('completed', 'failed')
    union all select 'signals at one place' from holdfast.signals
    group by run_id, branch, place having count(*) > 1
    union all select 'attempts: ' || f.attempt from holdfast.finished_jobs f
    where f.attempt - 1 <> (select count(*) from holdfast.attempts a where a.job_id = f.job_id)
"""
# Each line of the log: the last one of a failed step says what the step says; the others led to another try.
_LINES = """
    select a.run_id, a.attempt, a.step, case when a.error is null then 'completed'
        when a.id = max(a.id) over (partition by a.run_id, a.step) then 'failed' else 'retrying' end
    from holdfast.activities a order by a.id
"""
_CUT_OFF = "select job_id, attempt from holdfast.attempts where outcome = 'lost'"
_STEPS = "select run_id, name, attempt, state from holdfast.steps where kind = 'step' and place >= 0"


@asynccontextmanager
async def world(dsn: str, forker: Forker, folder: Path) -> AsyncIterator[World]:
    """Make a world and throw it away."""
    async with ThrowawayDatabase(dsn, pool_size=2) as db, holdfast.Client(dsn, schema=db.schema) as client:
        yield World(db, client, forker, folder)
