"""Branches: at once, each with a memory of its own, and failing together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def echo(what: str) -> str:
    """A step."""
    return what


async def test_branches_go_on_at_once_and_are_joined(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Two steps that wait for each other can only end together."""
    here, there = asyncio.Event(), asyncio.Event()

    async def meet(mine: asyncio.Event, other: asyncio.Event, name: str) -> str:
        mine.set()
        await other.wait()
        return name

    async def left(run: holdfast.Run) -> str:
        return await run.step(lambda: meet(here, there, "left"), name="meet", executor="loop")

    async def right(run: holdfast.Run) -> str:
        return await run.step(lambda: meet(there, here, "right"), name="meet", executor="loop")

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        async with run.branches() as branches:
            one = branches.start("left", left(run))
            two = branches.start("right", right(run))
        return [one.result(), two.result()]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == ["left", "right"]
    places = [(one.branch, one.place, one.name) for one in await client.history(handle.id)]
    assert sorted(places) == [("main/left", 0, "meet"), ("main/right", 0, "meet")]


async def test_each_branch_remembers_what_it_did(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """Branches of the same names, nested and repeated, keep apart; nothing is done twice."""

    async def note(what: str) -> str:
        calls.append(what)
        return what

    async def inner(run: holdfast.Run, prefix: str) -> str:
        first = await run.step(note, f"{prefix} first")
        await run.wait_signal(f"{prefix} go")
        return first + await run.step(note, f"{prefix} second")

    async def outer(run: holdfast.Run, prefix: str) -> list[str]:
        async with run.branches() as branches:
            ones = [branches.start(n, inner(run, f"{prefix}/{n}")) for n in ("a", "b")]
        return [one.result() for one in ones]

    @app.workflow
    async def plan(run: holdfast.Run) -> int:
        done: list[list[list[str]]] = []
        for _ in range(2):
            async with run.branches() as branches:
                both = [branches.start(n, outer(run, f"{len(done)}{n}")) for n in ("x", "y")]
            done.append([one.result() for one in both])
        return len(done)

    await work(app)
    handle = await client.enqueue(plan.job())
    for turn in range(2):
        for name in ("x/b", "y/a", "x/a", "y/b"):
            await rests(handle.id)
            await client.signal(handle.id, f"{turn}{name} go")
    assert await client.wait(handle.id, timeout=20) == 2
    assert sorted(calls) == sorted(set(calls))
    assert len(calls) == 16
    names = {one.branch for one in await client.history(handle.id)}
    assert {"main/x/a", "main/y/b", "main/x#2/a"} <= names


async def test_a_failing_branch_stops_its_siblings(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """One waits for days, one is in a step: both are told, and every replay meets the same group."""

    async def fail() -> None:
        msg = "broken"
        raise ValueError(msg)

    async def waits(run: holdfast.Run) -> None:
        try:
            await run.wait_signal("never")
        except asyncio.CancelledError:
            calls.append("wait stopped")
            raise

    async def works(run: holdfast.Run) -> None:
        await run.step(asyncio.Event().wait, name="works for ever")

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        try:
            async with run.branches() as branches:
                branches.start("waits", waits(run))
                branches.start("works", works(run))
                branches.start("fails", run.step(fail))
        except ExceptionGroup as group:
            met = [repr(error) for error in group.exceptions]
        await run.wait_signal("go")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == ["ValueError('broken')"]
    assert calls == ["wait stopped", "wait stopped"]
    stopped = [(one.branch, one.kind) for one in await client.history(handle.id) if one.kind == "cancel"]
    assert sorted(stopped) == [("main/waits", "cancel"), ("main/works", "cancel")]


async def test_a_branch_can_be_awaited_inside_the_block(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Meanwhile the run may be suspended like in any other wait."""

    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    @app.workflow
    async def plan(run: holdfast.Run) -> list[Any]:
        async with run.branches() as branches:
            asked = branches.start("ask", ask(run))
            first = await run.step(echo, "first")
            answer = await asked
            return [first, answer, await run.step(echo, "last")]

    await work(app)
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    await client.signal(handle.id, "go", 7)
    assert await client.wait(handle.id, timeout=20) == ["first", 7, "last"]


async def test_an_error_of_the_block_stops_its_branches(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """As in a TaskGroup it is part of the group."""

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("waits", run.wait_signal("never"))
            await run.step(echo, "x")
            msg = "in the block"
            raise KeyError(msg)

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="ExceptionGroup: branches of a run failed"):
        await client.wait(handle.id, timeout=20)


async def test_a_branch_writes_what_it_remembers_with_its_own_next_step(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """Another branch's write, which may come later than that step, does not carry it away."""
    drawn, go_on = asyncio.Event(), asyncio.Event()
    names = "select name from holdfast.steps order by 1"

    async def draws(run: holdfast.Run) -> None:
        run.now()
        drawn.set()
        await go_on.wait()
        await run.step(echo, 1, name="own")

    async def writes(run: holdfast.Run) -> list[Any]:
        await drawn.wait()
        await run.step(echo, 1, name="other")
        seen = await db.fetch(names)
        go_on.set()
        return seen

    @app.workflow
    async def plan(run: holdfast.Run) -> list[Any]:
        async with run.branches() as branches:
            branches.start("draws", draws(run))
            seen = branches.start("writes", writes(run))
        return seen.result()

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == [["other"]]
    assert await db.fetch(names) == [("now",), ("other",), ("own",)]
