"""Branches: at once, each with a memory of its own, and failing together."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def echo(what: str) -> str:
    """A step."""
    return what


async def fail() -> None:
    """A step that fails."""
    msg = "broken"
    raise ValueError(msg)


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


async def test_a_branch_that_cleans_up_after_its_sibling_failed_is_told_once(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """Also where it sleeps meanwhile: the replay meets the failure again, and the branch does not."""

    async def do(what: str) -> None:
        calls.append(what)

    async def patient(run: holdfast.Run) -> None:
        try:
            await run.wait_signal("never")
        finally:
            await run.step(do, "first")
            await run.wait_signal("go")
            await run.step(do, "second")
            await run.step(do, "third")

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("patient", patient(run))
            branches.start("fails", run.step(fail))

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    await client.signal(handle.id, "go")
    with pytest.raises(holdfast.JobFailed, match="branches of a run failed"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["first", "second", "third"]


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_branch_with_branches_of_its_own_is_told_once_by_their_end(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], *, awaited: bool
) -> None:
    """They are stopped for its sibling's failure; whether it awaits one of them or all, it may clean up."""

    async def nested(run: holdfast.Run) -> None:
        try:
            async with run.branches() as branches:
                leaf = branches.start("leaf", run.wait_signal("never"))
                if awaited:
                    try:
                        await leaf
                    finally:
                        await run.step(clean)
        finally:
            await run.step(clean)

    async def clean() -> None:
        calls.append("cleaned")

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("nested", nested(run))
            branches.start("fails", run.step(fail))

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="branches of a run failed"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["cleaned"] * (1 + awaited)


async def test_a_branch_may_await_its_sibling(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Meanwhile the run may be suspended, and goes on with both."""

    async def after(run: holdfast.Run, other: holdfast.BranchHandle[str]) -> str:
        return f"{await other}{await run.step(echo, 'b')}"

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        async with run.branches() as branches:
            first = branches.start("first", run.wait_signal("go"))
            second = branches.start("second", after(run, first))
        return [first.result(), second.result()]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    await client.signal(handle.id, "go", "a")
    assert await client.wait(handle.id, timeout=20) == ["a", "ab"]


async def test_a_branch_that_awaits_its_sibling_is_told_of_the_failure_of_a_third(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """It is told at its wait, which is recorded: a replay tells it there again."""

    async def after(other: holdfast.BranchHandle[Any]) -> None:
        try:
            await other
        except asyncio.CancelledError:
            calls.append("told")
            raise

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        try:
            async with run.branches() as branches:
                first = branches.start("first", run.wait_signal("never"))
                branches.start("second", after(first))
                branches.start("third", run.step(fail))
        except ExceptionGroup as group:
            return [repr(error) for error in group.exceptions], await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    await client.signal(handle.id, "go", 1)
    assert await client.wait(handle.id, timeout=20) == [["ValueError('broken')"], 1]
    assert calls == ["told", "told"]


async def test_branches_that_are_awaited_in_tasks_of_their_own_are_refused(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """As steps are: nobody could tell at a replay which of them went on first."""

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        async with run.branches() as branches:
            ones = [branches.start(name, run.step(echo, name)) for name in ("first", "second")]
            try:
                await asyncio.gather(*ones)
            except holdfast.StepsAtOnce as error:
                return str(error)
        return "not refused"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert "'the end of a branch' was begun in a task of its own" in await client.wait(handle.id, timeout=20)


async def test_a_stopped_step_that_raises_its_own_error_is_not_cut_short(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It may try again, but its sibling has failed: it is told so, and that alone is raised."""
    begun = asyncio.Event()

    async def late() -> None:
        await begun.wait()
        await fail()

    async def stubborn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            msg = "connection closed"
            raise OSError(msg) from None

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        retry = holdfast.Constant(timedelta(milliseconds=10))
        try:
            async with run.branches() as branches:
                branches.start("stubborn", run.step(stubborn, max_attempts=3, retry=retry))
                branches.start("late", run.step(late))
        except ExceptionGroup as group:
            return [repr(error) for error in group.exceptions]
        return []

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == ["ValueError('broken')"]


async def test_what_came_before_a_branch_is_recorded_no_later_than_what_the_branch_did(
    client: holdfast.Client, db: ThrowawayDatabase, work: Any, app: holdfast.App
) -> None:
    """Else a worker's death leaves a step that the next replay may not come to, if a sibling fails first."""
    here, there = asyncio.Event(), asyncio.Event()

    async def meet() -> None:
        here.set()
        await there.wait()

    async def outer(run: holdfast.Run) -> None:
        await run.sleep(0.01)
        async with run.branches() as branches:
            branches.start("inner", inner(run))

    async def inner(run: holdfast.Run) -> None:
        await run.step(echo, "done")
        await run.step(meet)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        run.now()
        async with run.branches() as branches:
            branches.start("outer", outer(run))

    await work(app)
    handle = await client.enqueue(plan.job())
    await asyncio.wait_for(here.wait(), 20)
    ended = "select branch, kind from holdfast.steps where state = 'completed' and place = 0 order by branch"
    assert await db.fetch(ended) == [("main", "now"), ("main/outer", "sleep"), ("main/outer/inner", "step")]
    there.set()
    await client.wait(handle.id, timeout=20)
