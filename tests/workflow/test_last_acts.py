"""Runs whose attempts are used up: they end, but not before they have made up for what they did."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast

SOON = holdfast.Constant(timedelta(milliseconds=10))


async def test_a_run_whose_timeouts_use_up_its_attempts_makes_up_for_its_steps(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lapse: Any
) -> None:
    """One more attempt belongs to the compensation alone, and the run ends as failed."""
    stuck = asyncio.Queue[None]()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "stuck":
            stuck.put_nowait(None)
            await asyncio.Event().wait()

    @app.workflow(max_attempts=2, timeout=60, retry=SOON)
    async def order(run: holdfast.Run) -> None:
        await run.step(do, "charge")
        run.on_failure(do, "refund")
        await run.step(do, "stuck")

    process = await work(app)
    handle = await client.enqueue(order.job())
    for _ in range(2):
        await stuck.get()
        lapse(process)
    with pytest.raises(holdfast.JobFailed, match=r"attempts exhausted \(2 of 2\): timed out after 60 s"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "stuck", "stuck", "refund"]
    assert (await client.job(handle.id)).failures == 2


async def test_a_run_that_outlives_its_last_worker_makes_up_for_its_steps(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lose: Any
) -> None:
    """The rescue hands it to another worker, though only for that."""
    begun = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "stuck":
            begun.set()
            await asyncio.Event().wait()

    @app.workflow(max_attempts=1)
    async def order(run: holdfast.Run) -> None:
        await run.step(do, "charge")
        run.on_failure(do, "refund")
        await run.step(do, "stuck")

    await work(app, ttl=1.0)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await lose()
    with pytest.raises(
        holdfast.JobFailed, match=r"attempts exhausted \(1 of 1\): worker .* stopped renewing"
    ):
        await client.wait(handle.id, timeout=30)
    assert calls == ["charge", "stuck", "refund"]


async def test_a_last_compensation_that_sleeps_is_still_the_last_act(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lapse: Any
) -> None:
    """A suspension renews the attempts of a run, but not those of one that is at its end."""
    stuck = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "stuck":
            stuck.set()
            await asyncio.Event().wait()
        if what == "refund" and calls.count("refund") == 1:
            raise OSError("not now")

    @app.workflow(max_attempts=1)
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "refund", max_attempts=2, retry=holdfast.Constant(timedelta(seconds=1.5)))
        await run.step(do, "charge")
        await run.step(do, "stuck")

    process = await work(app)
    handle = await client.enqueue(order.job())
    await stuck.wait()
    lapse(process)
    with pytest.raises(holdfast.JobFailed, match="timed out after"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["charge", "stuck", "refund", "refund"]


@pytest.mark.parametrize("ending", ["raises", "cancels"])
@pytest.mark.parametrize("cut", ["while it rests", "while it undoes"])
async def test_a_run_that_is_half_undone_goes_forward_no_more(
    client: holdfast.Client, work: Any, calls: list[str], rests: Any, ending: str, cut: str
) -> None:
    """Its code is mended, and would not fail again: the rest is undone, and it ends as it had to."""
    refunding = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)

    async def refund() -> None:
        calls.append("refund")
        if calls.count("refund") == 1:
            refunding.set()
            if cut == "while it undoes":
                await asyncio.Event().wait()
            raise OSError("not now")

    def version(*, mended: bool) -> holdfast.App:
        app = holdfast.App()

        @app.workflow(retry=SOON)
        async def order(run: holdfast.Run) -> holdfast.Cancel | None:
            run.on_failure(refund, max_attempts=2, retry=holdfast.Constant(timedelta(seconds=1.5)))
            run.on_failure(do, "unship", name="unship")
            await run.step(do, "charge")
            if mended:
                await run.step(do, "send")
            elif ending == "cancels":
                return holdfast.Cancel("a bug")
            else:
                raise KeyError("a bug")
            return None

        return app

    first = await work(version(mended=False))
    handle = await client.enqueue(version(mended=False).request("order", {}))
    await refunding.wait()
    if cut == "while it rests":
        await rests(handle.id)
    await first.stop(0.0)
    await work(version(mended=True))
    with pytest.raises(holdfast.JobFailed if ending == "raises" else holdfast.JobCancelled, match="a bug"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["charge", "unship", "refund", "refund"]


async def test_a_compensation_that_kills_its_worker_too_ends_the_run(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lose: Any
) -> None:
    """A last act is given once; what then remains is for a person."""
    begun = asyncio.Queue[str]()

    async def do(what: str) -> None:
        calls.append(what)
        begun.put_nowait(what)
        await asyncio.Event().wait()

    @app.workflow(max_attempts=1)
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "refund")
        await run.step(do, "charge")

    await work(app, ttl=1.0)
    handle = await client.enqueue(order.job())
    for what in ("charge", "refund"):
        assert await begun.get() == what
        await lose()
    with pytest.raises(holdfast.JobFailed, match="stopped renewing its lease"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["charge", "refund"]


async def test_a_job_that_is_no_run_gets_no_last_act(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lose: Any
) -> None:
    """It has nothing to make up for, and ends with its last attempt."""
    begun = asyncio.Event()

    @app.job(max_attempts=1)
    async def plain() -> None:
        calls.append("plain")
        begun.set()
        await asyncio.Event().wait()

    await work(app, ttl=1.0)
    handle = await client.enqueue(plain.job())
    await begun.wait()
    await lose()
    with pytest.raises(holdfast.JobFailed, match="stopped renewing its lease"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["plain"]
