"""The time that a run is told: the database's, at the moment when the code asks."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def test_a_run_that_waited_in_its_worker_is_told_the_present(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Its time begins when its code does, and not when it was claimed."""
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def busy() -> None:
        begun.set()
        await go.wait()

    @app.workflow
    async def look(run: holdfast.Run) -> str:
        return run.now().isoformat()

    claimer = (await work(app, slots=1)).worker.claimer
    await client.enqueue(busy.job())
    await begun.wait()
    # Its own turns would take our claim for one whose answer was lost.
    await claimer.stop()
    handle = await client.enqueue(look.job())
    asked = time.monotonic()
    claimed = await claimer.intake.claim(("default",), free=0, wanted=1)
    answered = timedelta(seconds=time.monotonic() - asked)
    assert [job.id for job in claimed] == [handle.id]
    before = await eventually(
        lambda: db.value(
            "select now() from holdfast.live_jobs "
            "where job_id = $1 and now() > claimed_at + $2 + interval '0.4 seconds'",
            handle.id,
            answered,
        )
    )
    go.set()
    told = datetime.fromisoformat(await client.wait(handle.id, timeout=20))
    # It lags behind by no more than the claim took to be answered.
    assert told > before - answered


@pytest.mark.parametrize("where", ["before", "above", "beside"])
async def test_a_step_that_is_called_again_is_told_the_same_time(
    client: holdfast.Client, work: Any, app: holdfast.App, where: str
) -> None:
    """Its worker ended before it was recorded; what it did with the time was done all the same."""
    told = asyncio.Queue[datetime]()

    async def book(moment: datetime) -> None:
        told.put_nowait(moment)
        if told.qsize() == 1 and not released:
            await asyncio.Event().wait()

    async def ask(run: holdfast.Run) -> datetime:
        return run.now()

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        if where == "before":
            await run.step(book, run.now())
            return
        async with run.branches() as branches:
            if where == "above":
                branches.start("below", run.step(book, run.now()))
            else:
                asked = branches.start("asks", ask(run))
        if where == "beside":
            await run.step(book, asked.result())

    released = False
    process = await work(app)
    handle = await client.enqueue(plan.job())
    first = await told.get()
    released = True
    await process.stop(0.0)
    await work(app)
    await client.wait(handle.id, timeout=20)
    assert await told.get() == first
