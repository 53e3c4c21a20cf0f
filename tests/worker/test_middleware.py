"""Middleware surrounds every handler, wherever it runs."""

from contextvars import ContextVar
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.worker import handlers


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
