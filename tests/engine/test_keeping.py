"""A claim is kept while an engine works on it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import holdfast
from holdfast.engine import Claim, Complete, RunQueue, keeping
from holdfast.errors import DatabaseRefused
from holdfast.model.worker import Renewal
from holdfast.testing import ThrowawayDatabase
from tests.engine.conftest import KIND, OpenStore


async def test_a_claim_that_is_kept_outlives_its_ttl(opened: OpenStore, eventually: Any) -> None:
    """The lease is renewed while the block runs, so that nobody rescues the run."""
    store, other = await opened(ttl=2.0), await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    async with keeping(store.queue, claim, every=0.05):
        loop = asyncio.get_running_loop()
        end = loop.time() + 2.5

        async def past() -> bool:
            assert await other.queue.rescue() == []
            return loop.time() > end

        await eventually(past)
    await store.queue.end(claim, Complete())


async def test_a_renewal_that_is_refused_is_tried_again(opened: OpenStore) -> None:
    """A lock that somebody holds for a moment is no reason to let the lease lapse."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    renewed, renewals = asyncio.Event(), 0

    class Refusing:
        """The second renewal meets a lock."""

        async def renew(self, claim: Claim) -> Renewal:
            nonlocal renewals
            renewals += 1
            if renewals == 2:
                raise DatabaseRefused("canceling statement due to lock timeout")
            if renewals > 2:
                renewed.set()
            return await store.queue.renew(claim)

    async with asyncio.timeout(10), keeping(cast("RunQueue", Refusing()), claim, every=0.01):
        await renewed.wait()


async def test_a_lost_lease_stops_the_block(opened: OpenStore, db: ThrowawayDatabase) -> None:
    """Whoever works for nothing is cut off, and told why."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()

    async def work() -> None:
        async with keeping(store.queue, claim, every=0.01):
            await db.fetch("update holdfast.workers set state = 'lost' where id = $1", claim.worker_id)
            await asyncio.Event().wait()

    with pytest.raises(holdfast.LeaseLost):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_lease_that_is_lost_already_lets_nobody_begin(
    opened: OpenStore, db: ThrowawayDatabase
) -> None:
    """The first renewal comes before the block."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await db.fetch("update holdfast.workers set state = 'lost' where id = $1", claim.worker_id)
    began = False

    async def work() -> None:
        nonlocal began
        async with keeping(store.queue, claim):
            began = True

    with pytest.raises(holdfast.LeaseLost):
        await work()
    assert not began


async def test_a_cancel_that_waits_is_known_from_the_beginning(
    opened: OpenStore, client: holdfast.Client
) -> None:
    """An engine that looks before its first step does not begin what nobody wants any more."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await client.cancel(claim.run_id)
    async with keeping(store.queue, claim) as keeper:
        assert keeper.wishes.cancelled


async def test_a_cancel_of_the_block_by_others_is_passed_on(opened: OpenStore) -> None:
    """What stops the program is not taken for a lost lease."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    begun = asyncio.Event()

    async def work() -> None:
        async with keeping(store.queue, claim):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.queue.end(claim, Complete())
