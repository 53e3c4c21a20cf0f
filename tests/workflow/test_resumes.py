"""Taking a failed run up again, and forking one: what is done again, and what is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def test_a_failure_that_was_dealt_with_stays_when_its_run_is_retried(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """Code that has caught the failure of a branch has gone on from there: a replay has to meet it again."""

    async def do(what: str) -> str:
        calls.append(what)
        if what == "fails" or (what == "last" and calls.count("last") == 1):
            raise RuntimeError(what)
        return what

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        done = []
        try:
            async with run.branches() as branches:
                branches.start("a", run.step(do, "fails"))
                branches.start("b", run.wait_signal("never"))
        except ExceptionGroup:
            done.append(await run.step(do, "instead"))
        return [*done, await run.step(do, "last")]

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="last"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["instead", "last"]
    assert calls == ["fails", "instead", "last", "last"]


async def test_a_retry_goes_on_in_the_branch_that_failed(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """And in those that were stopped for it; what they had done is not done again."""

    ready = asyncio.Event()

    async def do(what: str) -> str:
        calls.append(what)
        if what == "a2" and calls.count("a2") == 1:
            await ready.wait()
            raise RuntimeError(what)
        return what

    async def branch(run: holdfast.Run, name: str) -> list[str]:
        first = await run.step(do, f"{name}1")
        if name == "b":
            ready.set()
            await run.wait_signal("go")
        return [first, await run.step(do, f"{name}2")]

    @app.workflow
    async def plan(run: holdfast.Run) -> list[list[str]]:
        async with run.branches() as branches:
            both = [branches.start(name, branch(run, name)) for name in "ab"]
        return [one.result() for one in both]

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="branches of a run failed"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == [["a1", "a2"], ["b1", "b2"]]
    assert sorted(calls) == ["a1", "a2", "a2", "b1", "b2"]


async def test_a_retried_run_starts_its_failed_child_anew(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """The failed step of such a run is its child."""

    @app.job
    async def ship() -> str:
        calls.append("ship")
        if len(calls) == 1:
            raise holdfast.Poison("no lorry")
        return "shipped"

    @app.workflow
    async def order(run: holdfast.Run) -> Any:
        return await run.child(ship.job())

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="no lorry"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == "shipped"
    assert calls == ["ship", "ship"]


async def test_a_fork_in_the_middle_of_branches_takes_each_as_it_stood(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, eventually: Any
) -> None:
    """What another branch did later is done again, what it had done before is not; waits are waited anew."""
    ready, later = asyncio.Event(), asyncio.Event()

    async def do(what: str) -> str:
        calls.append(what)
        if what == "a2":
            await ready.wait()
        if what == "b2" and calls.count("b2") == 1:
            await later.wait()
        return what

    async def branch(run: holdfast.Run, name: str) -> list[Any]:
        first = await run.step(do, f"{name}1")
        if name == "b":
            ready.set()
        second = await run.step(do, f"{name}2", name="second")
        return [first, second, await run.wait_signal(name)]

    @app.workflow
    async def plan(run: holdfast.Run) -> list[Any]:
        async with run.branches() as branches:
            both = [branches.start(name, branch(run, name)) for name in "ab"]
        return [one.result() for one in both]

    await work(app)
    handle = await client.enqueue(plan.job())

    async def is_there() -> bool:
        return any((one.branch, one.place) == ("main/a", 1) for one in await client.history(handle.id))

    await eventually(is_there)
    later.set()
    await rests(handle.id)
    forked = await client.fork(handle.id, at="second", branch="main/a")
    assert await rests(forked.id) == "signal 'a'; signal 'b'"
    assert sorted(calls) == ["a1", "a2", "b1", "b2", "b2"]
    for run_id in (handle.id, forked.id):
        for name in "ab":
            await client.signal(run_id, name, run_id)
        assert await client.wait(run_id, timeout=20) == [["a1", "a2", run_id], ["b1", "b2", run_id]]


async def test_a_fork_keeps_children_that_had_ended_and_starts_the_others_anew(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], db: ThrowawayDatabase
) -> None:
    """The result of an ended child is remembered like that of a step."""

    @app.job
    async def ship(what: str) -> str:
        calls.append(what)
        return what

    @app.workflow
    async def order(run: holdfast.Run) -> list[str]:
        return [await run.child(ship.job(what)) for what in ("first", "second")]

    await work(app)
    handle = await client.enqueue(order.job())
    assert await client.wait(handle.id, timeout=20) == ["first", "second"]
    forked = await client.fork(handle.id, at="ship", place=0)
    assert await client.wait(forked.id, timeout=20) == ["first", "second"]
    assert calls == ["first", "second", "second"]
    assert await db.value("select count(*) from holdfast.jobs where parent_id = $1", forked.id) == 1
