"""What a worker finds though nobody tells it: behind a pooler, and after its lease had run out."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.store.database import Database
from holdfast.testing import Probe, ThrowawayDatabase

LONG = 600.0


async def test_behind_a_pooler_a_free_slot_looks_at_once(client: holdfast.Client, work: Any) -> None:
    """However long the poll is: the last look took all there was, and nobody tells of what came since."""
    app, last = holdfast.App(), asyncio.Event()
    length = 5

    @app.job
    async def link(nth: int) -> None:
        if nth == length:
            last.set()
        else:
            await client.enqueue(link.job(nth + 1))

    await client.enqueue(link.job(1))
    await work(app, slots=2, poll=LONG, database={"pgbouncer": True})
    async with asyncio.timeout(20):
        await last.wait()


async def test_behind_a_pooler_what_comes_during_a_claim_is_looked_for_at_once(
    client: holdfast.Client, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot is free all the time, and none gets free: only the claim itself may know that there is more."""
    app, ran, run = holdfast.App(), asyncio.Event(), Database.run
    brought = list[int]()

    @app.job
    async def wait(*, is_second: bool) -> None:
        if is_second:
            ran.set()
        await asyncio.Event().wait()

    async def answered(self: Database, statement: Any, connection: Any = None) -> Any:
        found = await run(self, statement, connection)
        if statement.name == "claim_jobs" and found:
            brought.append(len(found))
            if len(brought) == 1:
                await client.enqueue(wait.job(is_second=True))
        return found

    monkeypatch.setattr(Database, "run", answered)
    await client.enqueue(wait.job(is_second=False))
    await work(app, slots=2, poll=LONG, database={"pgbouncer": True})
    async with asyncio.timeout(20):
        await ran.wait()
    assert brought == [1, 1]


async def test_a_worker_whose_lease_is_renewed_after_all_looks_at_once(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """While it had run out every look found nothing, whatever there was; no notification comes again."""
    app, ran = holdfast.App(), asyncio.Event()

    @app.job
    async def greet() -> None:
        ran.set()

    process = await work(app, ttl=1.0, poll=LONG)
    # The thread finds the loop standing still, and does not renew.
    process.worker.lease._patience = lambda: -1.0
    await probe.wait_for("lease.abandoned")
    await db.fetch("update holdfast.workers set expires_at = holdfast.now() - interval '1 s'")
    handle = await client.enqueue(greet.job())
    # What it looks for in vain after a notification ends within half a second.
    await asyncio.sleep(1.5)
    assert (await client.job(handle.id)).state == "available"
    process.worker.lease._patience = lambda: LONG
    async with asyncio.timeout(20):
        await ran.wait()
