"""Middleware surrounds every handler, wherever it runs."""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.testing import ThrowawayDatabase
from holdfast.workflow.execution import Execution
from tests.worker import handlers


@pytest.fixture
def stands(client: holdfast.Client, eventually: Any) -> Any:
    """Waits until a job stands so: ``await stands(7, "waiting")``."""

    async def go(job_id: int, state: str) -> None:
        async def is_so() -> bool:
            return (await client.job(job_id)).state == state

        await eventually(is_so)

    return go


async def test_middleware_runs_in_order_and_sees_the_job(
    single: Any, work: Any, run: Any, executor: str
) -> None:
    """The first registered is the outermost; each sees the job and the result, and may change it."""
    app: holdfast.App = single(handlers.add)
    seen: list[str] = []

    def around(name: str) -> None:
        @app.middleware
        async def middleware(job: holdfast.Job, call: Any) -> Any:
            seen.append(f"{name} before {job.kind} {job.attempt}")
            result = await call()
            seen.append(f"{name} after {result}")
            return result + 1

    around("outer")
    around("inner")
    await work(app)
    assert await run(app, a=1, b=2) == 5, executor
    assert seen == ["outer before it 1", "inner before it 1", "inner after 3", "outer after 4"]


async def test_middleware_sees_what_the_handler_raises(single: Any, work: Any, run: Any) -> None:
    """Poison passes through as Poison in every executor, so that one except clause does for all."""
    app: holdfast.App = single(handlers.poison)
    caught: list[BaseException] = []

    @app.middleware
    async def watch(_job: holdfast.Job, call: Any) -> Any:
        try:
            return await call()
        except holdfast.Poison as error:
            caught.append(error)
            raise

    await work(app)
    with pytest.raises(holdfast.JobFailed, match="poison: Poison: the repository is gone"):
        await run(app)
    assert len(caught) == 1


async def test_middleware_may_answer_instead_of_the_handler(single: Any, work: Any, run: Any) -> None:
    """A middleware that does not call leaves the handler out; its own outcome counts."""
    app: holdfast.App = single(handlers.poison)

    @app.middleware
    async def skip(_job: holdfast.Job, _call: Any) -> Any:
        return holdfast.Cancel("not today")

    await work(app)
    with pytest.raises(holdfast.JobCancelled, match="not today"):
        await run(app)


async def test_an_error_of_a_middleware_is_an_error_of_the_attempt(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """It is counted and tried again like one of the handler."""
    app: holdfast.App = single(handlers.add)

    @app.middleware
    async def stumble(job: holdfast.Job, call: Any) -> Any:
        if job.failures == 0:
            msg = "stumbled"
            raise RuntimeError(msg)
        return await call()

    await work(app)
    assert await run(app, a=1, b=2) == 3
    assert await db.value("select reason from holdfast.attempts") == "RuntimeError: stumbled"


async def test_a_middleware_sees_what_a_run_raises_and_ends_none_that_rests(
    client: holdfast.Client, work: Any, stands: Any
) -> None:
    """It surrounds each attempt: it sees nothing of one that rests, and what it answers then counts not."""
    app = holdfast.App()
    seen: list[Any] = []

    @app.middleware
    async def watch(_job: holdfast.Job, call: Any) -> Any:
        try:
            seen.append(await call())
        except ValueError as error:
            seen.append(error)
        return "of the middleware"

    @app.workflow
    async def ask(run: holdfast.Run) -> str:
        run.on_failure(seen.append, "undone")
        if await run.wait_signal("answer", timeout=60) == "no":
            msg = "refused"
            raise ValueError(msg)
        return "of the run"

    await work(app)
    yes, no = [(await client.enqueue(ask.job())).id for _ in range(2)]
    for run_id in (yes, no):
        await stands(run_id, "waiting")
    assert seen == [None, None]
    await client.signal(yes, "answer", "yes")
    assert await client.wait(yes, timeout=20) == "of the middleware"
    await client.signal(no, "answer", "no")
    with pytest.raises(holdfast.JobFailed, match="ValueError: refused"):
        await client.wait(no, timeout=20)
    assert seen[2:4] == ["of the run", "undone"]
    assert [str(error) for error in seen[4:]] == ["refused"]


async def test_an_error_of_a_middleware_around_a_run_is_tried_again(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """Also where the run has only come to rest; one that has failed has failed, for its own reason."""
    app = holdfast.App()

    @app.middleware
    async def stumble(job: holdfast.Job, call: Any) -> Any:
        try:
            return await call()
        finally:
            if job.attempt == 1 or job.kind == "refuse":
                msg = "stumbled"
                raise RuntimeError(msg)

    @app.workflow(retry=holdfast.Constant(timedelta(0)))
    async def rest(run: holdfast.Run) -> str:
        await run.sleep(2)
        return "rested"

    @app.workflow
    async def refuse(run: holdfast.Run) -> None:  # noqa: ARG001 - it needs none
        msg = "refused"
        raise ValueError(msg)

    await work(app)
    rested, refused = (await client.enqueue(rest.job())).id, (await client.enqueue(refuse.job())).id
    assert await client.wait(rested, timeout=20) == "rested"
    reason = "select reason from holdfast.attempts where job_id = $1 order by attempt limit 1"
    assert await db.value(reason, rested) == "RuntimeError: stumbled"
    with pytest.raises(holdfast.JobFailed, match="ValueError: refused"):
        await client.wait(refused, timeout=20)


@pytest.mark.parametrize("where", ["before", "behind"])
async def test_a_cancel_that_meets_the_middleware_of_a_run_is_made_up_for(
    where: str, client: holdfast.Client, work: Any, stands: Any
) -> None:
    """Before the attempt has begun, or when it has come to rest: what was done has to be undone."""
    app, undone, reached = holdfast.App(), list[str](), asyncio.Event()

    async def dawdle() -> None:
        if not reached.is_set():
            reached.set()
            await asyncio.sleep(60)

    @app.middleware
    async def slow(job: holdfast.Job, call: Any) -> Any:
        if where == "before" and job.attempt > 1:
            await dawdle()
        answered = await call()
        if where == "behind":
            await dawdle()
        return answered

    @app.workflow
    async def book(run: holdfast.Run) -> None:
        run.on_failure(undone.append, "undone")
        await run.wait_signal("answer", timeout=60)

    await work(app)
    booked = (await client.enqueue(book.job())).id
    if where == "before":
        await stands(booked, "waiting")
        await client.signal(booked, "answer")
    async with asyncio.timeout(20):
        await reached.wait()
    await client.cancel(booked)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(booked, timeout=20)
    assert undone == ["undone"]


async def test_a_run_that_has_come_to_its_end_is_not_cancelled_in_its_middleware(
    client: holdfast.Client, work: Any
) -> None:
    """What was done is done, also after a cancel."""
    app, reached = holdfast.App(), asyncio.Event()

    @app.middleware
    async def slow(_job: holdfast.Job, call: Any) -> Any:
        answered = await call()
        reached.set()
        await asyncio.sleep(60)
        return answered

    @app.workflow
    async def reckon(run: holdfast.Run) -> int:  # noqa: ARG001 - it needs none
        return 7

    await work(app)
    reckoned = (await client.enqueue(reckon.job())).id
    async with asyncio.timeout(20):
        await reached.wait()
    await client.cancel(reckoned)
    assert await client.wait(reckoned, timeout=20) == 7


async def test_a_middleware_that_swallows_errors_completes_no_run(
    client: holdfast.Client, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kept an attempt from coming to anything, such as a database that was away, has it tried again."""
    app, tries, perform = holdfast.App(), list[int](), Execution.perform

    async def flawed(execution: Execution) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise DatabaseUnavailable("it is away")
        return await perform(execution)

    monkeypatch.setattr(Execution, "perform", flawed)

    @app.middleware
    async def swallow(_job: holdfast.Job, call: Any) -> Any:
        with suppress(holdfast.HoldfastError):
            return await call()

    @app.workflow(retry=holdfast.Constant(timedelta(0)))
    async def reckon(run: holdfast.Run) -> int:  # noqa: ARG001 - it needs none
        return 7

    await work(app)
    assert await client.wait((await client.enqueue(reckon.job())).id, timeout=20) == 7


async def test_a_run_that_snoozes_is_not_completed_by_its_middleware(
    client: holdfast.Client, work: Any, stands: Any
) -> None:
    """Whatever that answers: the run has said that it goes on later."""
    app = holdfast.App()

    @app.middleware
    async def deaf(_job: holdfast.Job, call: Any) -> None:
        await call()

    @app.workflow
    async def doze(run: holdfast.Run) -> holdfast.Snooze:  # noqa: ARG001 - it needs none
        return holdfast.Snooze(3600, "later")

    await work(app)
    await stands((await client.enqueue(doze.job())).id, "scheduled")


async def test_what_a_middleware_sets_in_its_context_reaches_a_thread(
    client: holdfast.Client, work: Any
) -> None:
    """Context variables travel with the call, as tracing and logging need."""
    app = holdfast.App()
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    @app.middleware
    async def enter(_job: holdfast.Job, call: Any) -> Any:
        token = tenant.set("acme")
        try:
            return await call()
        finally:
            tenant.reset(token)

    @app.job
    def who() -> str:
        return tenant.get()

    await work(app)
    assert await client.wait((await client.enqueue(who.job())).id, timeout=20) == "acme"
