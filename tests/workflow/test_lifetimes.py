"""Runs that live long: what their workers' deaths cost them, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import timedelta
from typing import Any

import holdfast
from holdfast.testing import ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))


async def test_failures_count_anew_once_a_run_has_got_on(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, lapse: Any
) -> None:
    """Three lost attempts over its life do not end a run that may fail twice in a row."""
    stuck, begun = [True, True, True], asyncio.Queue[int]()

    async def stage(number: int) -> None:
        if stuck[number]:
            stuck[number] = False
            begun.put_nowait(number)
            await asyncio.Event().wait()

    @app.workflow(max_attempts=2, retry=SOON)
    async def plan(run: holdfast.Run) -> str:
        for number in range(3):
            await run.step(stage, number)
            await run.wait_signal("on")
        return "done"

    process = await work(app)
    handle = await client.enqueue(plan.job())
    for number in range(3):
        assert await begun.get() == number
        lapse(process)
        await rests(handle.id)
        assert (await client.job(handle.id)).failures == 0
        await client.signal(handle.id, "on")
    assert await client.wait(handle.id, timeout=20) == "done"
    assert stuck == [False, False, False]


async def test_a_worker_forgets_functions_that_were_steps(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """What a closure holds is let go with its run, or a worker would grow with every run."""
    held: list[weakref.ref[Any]] = []

    class Burden:
        pass

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        burden = Burden()
        held.append(weakref.ref(burden))

        async def lift() -> str:
            return repr(burden)

        await run.step(lift)

    await work(app)
    for _ in range(3):
        await client.wait((await client.enqueue(plan.job())).id, timeout=20)
    gc.collect()
    # The slot may still hold the frames of its latest run.
    assert [one for one in held[:-1] if one() is not None] == []


async def test_a_fork_keeps_large_results_when_the_other_run_is_gone(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """What it remembers is its own: the first run may begin anew or be pruned."""

    async def scan() -> bytes:
        return b"page"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        kept = await run.blob(scan)
        await run.wait_signal("on")
        page: bytes = await run.read(kept)
        return page.decode()

    await work(app)
    first = await client.enqueue(plan.job())
    await rests(first.id)
    fork = await client.fork(first.id, at="scan")
    await client.signal(first.id, "on")
    assert await client.wait(first.id, timeout=20) == "page"
    await db.fetch("delete from holdfast.blobs where run_id = $1", first.id)
    await client.signal(fork.id, "on")
    assert await client.wait(fork.id, timeout=20) == "page"
