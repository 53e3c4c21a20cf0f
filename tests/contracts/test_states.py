"""The state diagram of docs/concepts.md has exactly the transitions that jobs make."""

import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend
from holdfast.store import attempts, counts, leader, runs, workers
from holdfast.store.attempts import Demand, Ended, Fence, Returned
from holdfast.store.runs import Suspended
from holdfast.testing import Clock, ThrowawayDatabase

PAGE = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text()
ARROW = re.compile(r"^ +(\S+) --> (\S+)(?: : .+)?$", re.MULTILINE)
DIAGRAM = set(ARROW.findall(PAGE))
START = "[*]"

OBSERVE = """
create table holdfast.seen (nth bigint generated always as identity, job_id bigint, state text);
create function holdfast.see() returns trigger language plpgsql as $$
begin
    insert into holdfast.seen (job_id, state)
    values (new.job_id, case when tg_table_name = 'live_jobs' then to_jsonb(new)->>'state'
                             else to_jsonb(new)->>'outcome' end);
    return null;
end $$;
create trigger see after insert or update on holdfast.live_jobs for each row execute function holdfast.see();
create trigger see after insert on holdfast.finished_jobs for each row execute function holdfast.see();
"""
Act: TypeAlias = Callable[[int], Awaitable[Any]]

QUEUE = "q"
AGAIN = PutBack(Outcome.RETRIED, delay=60.0, counts=True, reason="again")
BACK = PutBack(Outcome.RELEASED, delay=0.0, counts=False, reason="back")
ENDS = (Complete(), Fail(error="e", reason="r"), Stop("s"))


class Story:
    """Moves jobs through their states by the statements that workers, leaders and operators use."""

    def __init__(self, db: ThrowawayDatabase, client: holdfast.Client) -> None:
        self.db, self.client = db, client
        self.jobs = Operator(db.database, "me").jobs
        self.app = holdfast.App()
        self.ping = self.app.job(kind="ping", queue=QUEUE)(_ping)

    async def run(self, statement: Any) -> Any:
        """Run a statement of the store."""
        return await self.db.database.run(statement)

    async def enqueue(self, **options: Any) -> int:
        """Enqueue a job; answers its id."""
        return (await self.client.enqueue(self.ping.job(), **options)).id

    async def worker(self) -> int:
        """Register a worker; answers its id."""
        new = workers.NewWorker(
            name="w",
            host="h",
            pid=1,
            version="0",
            queues=(QUEUE,),
            kinds=("ping",),
            workflows=("ping",),
            slots=1,
            ttl=30.0,
        )
        worker_id: int = await self.run(workers.register_worker(new))
        return worker_id

    async def claim(self, *, free: int, worker_id: int | None = None) -> Fence:
        """Claim the oldest available job; for the buffer where *free* is 0."""
        worker_id = worker_id or await self.worker()
        demand = Demand(worker_id=worker_id, queues=(QUEUE,), kinds=("ping",), limit=1, free=free)
        (job,) = await self.run(attempts.claim_jobs(demand))
        return Fence(job.id, job.attempt)

    async def stage(self, seconds: float) -> None:
        """Let time pass and stage what is due."""
        await Clock(self.db).advance(seconds)
        term = await self.run(leader.lead("me", None, 60.0))
        await self.run(leader.stage_jobs(term, 100))

    async def observed(self) -> set[tuple[str, str]]:
        """The transitions that were made so far."""
        rows = await self.db.fetch("select job_id, state from holdfast.seen order by nth")
        paths: dict[int, list[str]] = {}
        for job_id, state in rows:
            paths.setdefault(job_id, [START]).append(state)
        return {(a, b) for path in paths.values() for a, b in pairwise(path) if a != b}


async def _ping() -> None: ...


@pytest.fixture
async def story(db: ThrowawayDatabase, client: holdfast.Client) -> Story:
    """A schema that records every state a job takes."""
    async with db.database.connection() as connection:
        await connection.execute(OBSERVE.replace("holdfast.", f'"{db.schema}".'))
    return Story(db, client)


async def _ends_by_workers(story: Story) -> None:
    for free in (0, 1):
        for end in ENDS:
            await story.enqueue()
            await story.run(attempts.finish_jobs([Ended(await story.claim(free=free), end)]))
        for back in (BACK, AGAIN):
            job_id = await story.enqueue()
            await story.run(attempts.put_back_jobs([Returned(await story.claim(free=free), back)]))
            await story.jobs.cancel(job_id)


def _signal(story: Story) -> Act:
    """The act of sending the signal that is waited for."""

    async def act(run_id: int) -> None:
        await story.client.signal(run_id, "go")

    return act


async def _sleeps(story: Story) -> None:
    for free in (0, 1):
        acts: tuple[Act, ...] = (_signal(story), story.jobs.cancel, story.jobs.discard)
        for act in acts:
            job_id = await story.enqueue()
            asleep = Suspended(await story.claim(free=free), Suspend("a signal", signals=("go",)))
            await story.run(runs.suspend_runs([asleep]))
            await act(job_id)
            # One that woke would be the next to be claimed.
            await _cancel_all(story)
    for options in ({}, {"delay": 60}):
        await story.client.pause(await story.enqueue(**options))
    await _cancel_all(story)


async def _cancel_all(story: Story) -> None:
    for (job_id,) in await story.db.fetch("select job_id from holdfast.live_jobs"):
        await story.jobs.cancel(job_id)


async def _ways_through_the_buffer(story: Story) -> None:
    await story.enqueue(delay=60)
    await story.stage(61)
    fence = await story.claim(free=0)
    await story.run(attempts.start_jobs([(fence, 0.0)]))
    await story.run(attempts.finish_jobs([Ended(fence, Complete())]))


async def _rescues(story: Story) -> None:
    job_ids = [await story.enqueue() for _ in range(2)]
    for free in (0, 1):
        await story.claim(free=free)
    await story.stage(31)
    term = await story.run(leader.lead("me", None, 60.0))
    await story.run(workers.declare_lost(term))
    await story.run(workers.rescue_jobs(term, 10))
    for job_id in job_ids:
        await story.jobs.cancel(job_id)


async def _replaces(story: Story) -> None:
    for delay in (None, 60, None):
        options = {} if delay is None else {"delay": delay}
        job_id = await story.enqueue(unique_key="k", unique_policy="replace", **options)
    await story.jobs.cancel(job_id)


async def _acts_of_operators(story: Story) -> None:
    for options in ({}, {"delay": 60}):
        await story.jobs.cancel(await story.enqueue(**options))
        discarded = await story.enqueue(**options)
        await story.jobs.discard(discarded)
    await story.jobs.retry(discarded)
    await story.jobs.cancel(discarded)
    await story.jobs.retry(discarded)
    await story.jobs.cancel(discarded)


async def _nobody_knows_the_kind(story: Story) -> None:
    await story.enqueue()
    await story.db.fetch("update holdfast.live_jobs set kind = 'alien'")
    await story.worker()
    await story.stage(10)
    term = await story.run(leader.lead("me", None, 60.0))
    for unknown in await story.run(counts.count_jobs(term, 1.0)):
        await story.run(counts.fail_unknown(term, unknown, grace=1.0, limit=10))


async def test_jobs_make_the_transitions_of_the_diagram_and_no_others(story: Story) -> None:
    """Everything that moves a job is done once; what was seen is what is drawn."""
    for chapter in (
        _ends_by_workers,
        _sleeps,
        _ways_through_the_buffer,
        _rescues,
        _replaces,
        _acts_of_operators,
        _nobody_knows_the_kind,
    ):
        await chapter(story)
    assert not await story.db.fetch("select * from holdfast.live_jobs")
    drawn = {(a, b) for a, b in DIAGRAM if b != START}
    assert await story.observed() == drawn


def test_the_diagram_knows_every_state() -> None:
    """Each state of the code is drawn, and the ends are ends."""
    drawn = {state for arrow in DIAGRAM for state in arrow} - {START}
    assert drawn == {state.value for state in JobState}
    assert {a for a, b in DIAGRAM if b == START} == {state.value for state in FINAL_STATES}


@pytest.mark.parametrize("words", [JobState, Outcome], ids=lambda words: words.__name__)
def test_the_tables_have_every_word(words: type[JobState] | type[Outcome]) -> None:
    """States and outcomes are explained, each in a row of its own."""
    explained = set(re.findall(r"^\| `?(\w+)`? \|", PAGE, re.MULTILINE))
    assert {word.value for word in words} <= explained
