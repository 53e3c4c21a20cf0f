"""What an application keeps open for as long as its worker runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase, drain


def app_with_pools(told: list[str]) -> holdfast.App:
    """An app with two lifespans, and a kind that notes itself between them."""
    app = holdfast.App()

    @app.lifespan
    async def outer() -> AsyncIterator[None]:
        told.append("outer opens")
        try:
            yield
        finally:
            told.append("outer closes")

    @app.lifespan
    async def inner() -> AsyncIterator[None]:
        # As anyio's task groups do, this insists on being left in the task that entered it.
        async with asyncio.timeout(60):
            told.append("inner opens")
            yield
        told.append("inner closes")

    @app.job
    async def step() -> None:
        told.append("step")

    return app


ORDER = ["outer opens", "inner opens", "step", "inner closes", "outer closes"]


async def test_lifespans_surround_all_jobs_of_a_worker(client: holdfast.Client, work: Any) -> None:
    """They open before the first job, though it waits already, and close after the last, in reverse order."""
    told: list[str] = []
    app = app_with_pools(told)
    handle = await client.enqueue(app.request("step", {}))
    process = await work(app)
    await client.wait(handle.id, timeout=20)
    await asyncio.create_task(process.stop(5.0))
    assert told == ORDER


async def test_drain_opens_and_closes_them_too(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A test of a handler finds what the handler finds in a worker."""
    told: list[str] = []
    app = app_with_pools(told)
    await client.enqueue(app.request("step", {}))
    await drain(app, db)
    assert told == ORDER


async def test_a_worker_whose_lifespan_fails_does_not_start(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """What was open is closed, the error comes out, and no job was touched."""
    told: list[str] = []
    app = app_with_pools(told)

    @app.lifespan
    async def broken() -> AsyncIterator[None]:
        msg = "no such host"
        raise ConnectionError(msg)
        yield

    await client.enqueue(app.request("step", {}))
    with pytest.raises(ConnectionError, match="no such host"):
        await drain(app, db)
    assert told == ["outer opens", "inner opens", "outer closes"]
    assert await db.fetch("select state, attempt from holdfast.live_jobs") == [("available", 0)]
    assert await db.value("select count(*) from holdfast.workers") == 0
