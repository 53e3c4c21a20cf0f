"""A handler that ends only when the stop has given it up: its end is written all the same."""

import asyncio
from contextlib import suppress
from typing import Any

import holdfast
from holdfast.testing import Probe, ThrowawayDatabase


async def test_what_ends_after_it_could_not_be_handed_back_in_time_goes_back_unspent(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """Somebody holds its row for a moment, and the worker waits for that before it says goodbye."""
    app, begun = holdfast.App(), asyncio.Event()

    @app.job(max_attempts=1)
    async def stubborn() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    process = await work(app, ttl=1.0)
    handle = await client.enqueue(stubborn.job())
    await begun.wait()
    async with db.database.transaction() as connection:
        held = "select from holdfast.live_jobs where job_id = $1 for update"
        await connection.execute(held.replace("holdfast.", f"{db.schema}."), handle.id)
        stopping = asyncio.create_task(process.stop(0.0))
        await probe.wait_for("worker.left_behind")
        await asyncio.sleep(0.2)
    await stopping
    job = await client.job(handle.id)
    assert (job.state, job.failures) == ("available", 0)
