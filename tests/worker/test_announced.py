"""A worker at rest claims a job that is announced alone by its number, and no other one waits for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.rules import polling
from holdfast.rules.marks import line_of
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.testing import ThrowawayDatabase
from holdfast.worker.worker import Worker

# So rare that a test which needs a poll would time out.
NEVER = 60.0
# A job becomes available, and nobody is told.
IN_SILENCE = "update holdfast.live_jobs set state = 'available', run_at = now() where job_id = $1"

AtRest = Callable[..., Awaitable[Worker]]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims that are sent, by the names of their statements."""
    sent, run = list[str](), Database.run

    async def noted(self: Database, statement: Statement[Any], connection: Any = None) -> Any:
        if statement.name.startswith("claim_"):
            sent.append(statement.name)
        return await run(self, statement, connection)

    monkeypatch.setattr(Database, "run", noted)
    return sent


@pytest.fixture
def app() -> holdfast.App:
    """An application with one kind, ``greet``, that notes who was greeted."""
    app = holdfast.App()

    @app.job(kind="greet")
    async def greet(name: str = "you") -> str:
        return name

    return app


@pytest.fixture
def at_rest(work: Any, eventually: Any, claims: list[str]) -> AtRest:
    """Starts a worker and waits until it has nothing to look for."""

    async def start(app: holdfast.App, **options: Any) -> Worker:
        worker: Worker = (await work(app, **({"poll": NEVER} | options))).worker
        await eventually(lambda: asyncio.sleep(0, worker.claimer._due_at - time.monotonic() > 1))
        claims.clear()
        return worker

    return start


def greeting(name: str) -> JobRequest:
    """A job that answers with *name*."""
    return JobRequest("greet", f'{{"name": "{name}"}}')


async def silent(client: holdfast.Client, db: ThrowawayDatabase, name: str) -> int:
    """Make a job available without a word to anybody; answers its id."""
    handle = await client.enqueue(greeting(name), delay=3600)
    await db.fetch(IN_SILENCE, handle.id)
    return handle.id


async def test_a_worker_at_rest_looks_for_the_announced_job_alone(
    client: holdfast.Client, app: holdfast.App, at_rest: AtRest, claims: list[str]
) -> None:
    """No line of any queue is read before it begins; but its place is remembered, and a look is due soon."""
    worker = await at_rest(app)
    handle = await client.enqueue(greeting("ada"))
    assert await client.wait(handle.id, timeout=20) == "ada"
    assert claims[0] == "claim_announced"
    assert worker.claimer.intake._claims._marks.tips(["default"])[line_of(5, handle.id)] == handle.id
    assert worker.claimer._due_at - time.monotonic() < 1


async def test_jobs_announced_at_once_are_all_taken(
    client: holdfast.Client, db: ThrowawayDatabase, app: holdfast.App, at_rest: AtRest
) -> None:
    """However many come before the worker can turn to the first of them, and whoever has got that."""
    worker = await at_rest(app)
    ids = [await silent(client, db, name) for name in ("ada", "grace")]
    for job_id in (999_998, *ids, 999_999):
        worker.notified("job", f"{job_id}:5:default")
    assert [await client.wait(job_id, timeout=20) for job_id in ids] == ["ada", "grace"]


async def test_a_job_that_somebody_else_has_is_no_reason_to_look(
    client: holdfast.Client, app: holdfast.App, at_rest: AtRest, claims: list[str]
) -> None:
    """Of a fleet at rest all are told, one gets the job, and each has sent one small statement."""
    worker = await at_rest(app)
    due_at = worker.claimer._due_at
    worker.notified("job", "999999:5:default")
    handle = await client.enqueue(greeting("ada"))
    assert await client.wait(handle.id, timeout=20) == "ada"
    assert claims[:2] == ["claim_announced", "claim_announced"]
    assert due_at > worker.claimer._due_at


async def test_what_nobody_announced_is_found_while_others_are_announced_one_by_one(
    client: holdfast.Client, db: ThrowawayDatabase, at_rest: AtRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is claimed by its number, and none puts the next look off."""
    monkeypatch.setattr(polling, "WITHIN", 0.0)
    app, greeted = holdfast.App(), asyncio.Queue[str]()

    @app.job(kind="greet")
    async def greet(name: str) -> None:
        greeted.put_nowait(name)

    worker = await at_rest(app)
    await silent(client, db, "ada")
    name, others = "", 0
    async with asyncio.timeout(20):
        while name != "ada":
            await client.enqueue(greeting("grace"))
            name, others = await greeted.get(), others + 1
    # A look is due after 20 ms, in which no machine does as many as this.
    assert others < 100
    assert worker.claimer._wake_level.is_told_of_all


async def test_one_that_is_called_again_and_again_keeps_watch(
    app: holdfast.App,
    at_rest: AtRest,
    claims: list[str],
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for calls that name no job: it tells those who enqueue that it looks by itself."""
    monkeypatch.setattr(polling, "WITHIN", 60.0)
    monkeypatch.setattr(polling, "PATIENCE", 60.0)
    worker = await at_rest(app)
    for nth in range(1, polling.CALLS):
        worker.notified("job", f"{999_000 + nth}:5:default")
        await eventually(lambda nth=nth: asyncio.sleep(0, claims == ["claim_announced"] * nth))
    worker.notified("job", "999999:5:default")
    await eventually(lambda: db.value("select wakes_below = 0 from holdfast.workers"))


async def test_a_limited_queue_is_claimed_by_its_limit(
    client: holdfast.Client, db: ThrowawayDatabase, app: holdfast.App, at_rest: AtRest, claims: list[str]
) -> None:
    """A number says nothing of how many may run."""
    await Operator(db.database, "tester").queues.limit("default", 1, create=True)
    await at_rest(app)
    handle = await client.enqueue(greeting("ada"))
    assert await client.wait(handle.id, timeout=20) == "ada"
    assert "claim_announced" not in claims


async def test_a_job_announced_while_all_slots_are_taken_is_claimed_when_one_is_free(
    client: holdfast.Client, at_rest: AtRest, claims: list[str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """And not by its number: another one may have a better right to the slot by then."""
    app, begun, gate = holdfast.App(), asyncio.Queue[int](), asyncio.Event()

    @app.job
    async def stay(n: int) -> None:
        begun.put_nowait(n)
        await gate.wait()

    await at_rest(app, slots=1, prefetch=0)
    await client.enqueue(stay.job(1))
    assert await begun.get() == 1
    claims.clear()
    await client.enqueue(stay.job(2))
    # It has looked at its slots, and asks not to be told of more.
    await eventually(lambda: db.value("select wakes_below = 0 from holdfast.workers"))
    await client.enqueue(stay.job(3), priority=0)
    gate.set()
    async with asyncio.timeout(20):
        assert [await begun.get(), await begun.get()] == [3, 2]
    assert "claim_announced" not in claims


async def test_a_job_that_is_announced_goes_before_none_that_is_known_to_wait(
    client: holdfast.Client, db: ThrowawayDatabase, at_rest: AtRest
) -> None:
    """The last look left some behind as there was no room: the slot that is free now is theirs."""
    app, begun = holdfast.App(), asyncio.Queue[str]()

    @app.job(kind="greet")
    async def greet(name: str) -> None:
        begun.put_nowait(name)

    worker = await at_rest(app, slots=1, prefetch=0)
    await silent(client, db, "ada")
    job_id = await silent(client, db, "grace")
    worker.claimer.intake.has_more = True
    worker.notified("job", f"{job_id}:5:default")
    async with asyncio.timeout(20):
        assert [await begun.get(), await begun.get()] == ["ada", "grace"]


async def test_a_claim_that_fails_is_made_up_for_by_a_look(
    client: holdfast.Client,
    app: holdfast.App,
    at_rest: AtRest,
    claims: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database is away for a moment: the announcement is gone, and the job runs all the same."""
    await at_rest(app)
    run, failed = Database.run, list[str]()

    async def away_once(self: Database, statement: Statement[Any], connection: Any = None) -> Any:
        if statement.name == "claim_announced" and not failed:
            failed.append(statement.name)
            msg = "away"
            raise DatabaseUnavailable(msg)
        return await run(self, statement, connection)

    monkeypatch.setattr(Database, "run", away_once)
    handle = await client.enqueue(greeting("ada"))
    assert await client.wait(handle.id, timeout=20) == "ada"
    assert failed
    assert "claim_jobs" in claims


async def test_an_answer_that_comes_after_the_worker_was_declared_lost_is_dropped(
    client: holdfast.Client, at_rest: AtRest, lose: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has registered anew meanwhile, and what it claimed before is for others to decide about."""
    app, begun, run = holdfast.App(), list[int](), Database.run

    @app.job(kind="greet")
    async def greet(job: holdfast.Job, name: str) -> None:  # noqa: ARG001
        begun.append(job.attempt)

    worker = await at_rest(app, ttl=1.0)
    former = worker.worker_id

    async def late(self: Database, statement: Statement[Any], connection: Any = None) -> Any:
        answer = await run(self, statement, connection)
        if statement.name == "claim_announced" and worker.worker_id == former:
            await lose()
            await eventually(lambda: asyncio.sleep(0, worker.worker_id not in (0, former)))
        return answer

    monkeypatch.setattr(Database, "run", late)
    handle = await client.enqueue(greeting("ada"))
    await client.wait(handle.id, timeout=30)
    assert begun == [2]


async def test_what_a_worker_was_not_told_of_goes_before_what_it_is(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Enqueued when nobody was asleep, and committed since: the next one is announced, but not the first."""
    app, order = holdfast.App(), list[str]()

    @app.job(kind="greet")
    async def greet(name: str) -> None:
        order.append(name)

    async with db.database.transaction() as transaction:
        handles = [await client.enqueue(greeting("first"), connection=transaction)]
        await work(app, slots=1, poll=NEVER)
        await eventually(lambda: db.value("select count(*) from holdfast.workers where wakes_below = 10"))
    handles.append(await client.enqueue(greeting("second")))
    for handle in handles:
        await client.wait(handle.id, timeout=20)
    assert order == ["first", "second"]
