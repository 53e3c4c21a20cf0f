"""Waiting: on signals and times, without a slot, a lease or a failure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

HELD = "select count(*) from holdfast.live_jobs where worker_id is not null"


async def test_a_waiting_run_holds_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """One slot serves any number of waiting runs, and each goes on with its own signal."""

    @app.workflow
    async def ask(run: holdfast.Run, n: int) -> list[Any]:
        return [n, await run.wait_signal("answer")]

    await work(app, slots=1)
    handles = await client.enqueue_many([ask.job(n=n) for n in range(5)])
    for handle in handles:
        assert await rests(handle.id) == "signal 'answer'"
    assert await db.value(HELD) == 0
    for handle in reversed(handles):
        await client.signal(handle.id, "answer", f"for {handle.id}")
    for n, handle in enumerate(handles):
        assert await client.wait(handle.id, timeout=20) == [n, f"for {handle.id}"]
    assert await db.value("select count(*) from holdfast.suspensions") == 0


async def test_signals_are_read_in_order_and_once(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Those that came before the wait first; each name has a line of its own; a key counts once."""

    @app.workflow
    async def collect(run: holdfast.Run) -> list[Any]:
        seen = [await run.wait_signal("a") for _ in range(3)]
        return [*seen, await run.wait_signal("b")]

    handle = await client.enqueue(collect.job())
    await client.signal(handle.id, "b", "b1")
    first = await client.signal(handle.id, "a", 1, key="k")
    assert await client.signal(handle.id, "a", "twice", key="k") == first
    await client.signal(handle.id, "a", {"n": 2})
    await work(app)
    assert await rests(handle.id) == "signal 'a'"
    await client.signal(handle.id, "a", [3])
    assert await client.wait(handle.id, timeout=20) == [1, {"n": 2}, [3], "b1"]


async def test_a_signal_from_plain_sql_wakes_its_run_at_the_commit(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """Nothing is to be seen of it before, and a rolled-back one was never sent."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    await db.value("""select holdfast.send_signal($1, 'go', '{"by": "psql"}')""", handle.id)
    assert await client.wait(handle.id, timeout=20) == {"by": "psql"}


async def test_a_signal_to_nobody_is_refused(client: holdfast.Client) -> None:
    """Whoever signals a run that has ended is told so."""
    with pytest.raises(holdfast.RunEnded, match="run 4711 has ended or does not exist"):
        await client.signal(4711, "go")


async def test_a_wait_for_a_signal_ends_at_its_time(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """The time counts from the first wait, whatever wakes the run between; it raises what can be caught."""

    @app.workflow
    async def ask(run: holdfast.Run) -> str:
        try:
            await run.wait_signal("go", timeout=timedelta(seconds=1.5))
        except TimeoutError as error:
            return f"{type(error).__name__}: {error}"
        return "not reached"

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    due = await db.value("select wake_at from holdfast.steps")
    assert await client.wait(handle.id, timeout=20) == "SignalTimeout: signal 'go' did not come in time"
    ended = await db.value("select finished_at from holdfast.finished_jobs")
    assert timedelta(0) <= ended - due < timedelta(seconds=1)


async def test_a_sleep_ends_at_its_time_although_the_run_woke_between(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """A sleep is a moment, not a length: a signal for another branch does not prolong it."""

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        async with run.branches() as branches:
            branches.start("nap", run.sleep(2))
            told = branches.start("ask", run.wait_signal("go"))
        return str(told.result())

    await work(app)
    handle = await client.enqueue(nap.job())
    await rests(handle.id)
    due = await db.value("select wake_at from holdfast.steps where kind = 'sleep'")
    await client.signal(handle.id, "go", "told")
    assert await client.wait(handle.id, timeout=20) == "told"
    ended = await db.value("select finished_at from holdfast.finished_jobs")
    assert timedelta(0) <= ended - due < timedelta(seconds=1)


async def test_a_sleep_until_a_moment_that_is_past_is_over(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It is no error, and needs no suspension."""

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        await run.sleep_until(datetime(2001, 1, 1, tzinfo=UTC))
        await run.sleep(0.05)
        return "awake"

    await work(app)
    handle = await client.enqueue(nap.job())
    assert await client.wait(handle.id, timeout=20) == "awake"
    assert (await client.job(handle.id)).attempt == 1


async def test_a_signal_is_seen_while_another_branch_works(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A run that stays in memory looks for its signals there."""
    answered = asyncio.Event()

    async def long() -> str:
        await answered.wait()
        return "worked"

    async def listen(run: holdfast.Run) -> str:
        payload = await run.wait_signal("go")
        answered.set()
        return str(payload)

    @app.workflow
    async def both(run: holdfast.Run) -> list[str]:
        async with run.branches() as branches:
            one = branches.start("work", run.step(long))
            two = branches.start("listen", listen(run))
        return [one.result(), two.result()]

    await work(app)
    handle = await client.enqueue(both.job())
    await client.signal(handle.id, "go", "heard")
    assert await client.wait(handle.id, timeout=20) == ["worked", "heard"]
    assert (await client.job(handle.id)).attempt == 1
