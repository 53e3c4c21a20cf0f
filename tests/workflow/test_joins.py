"""Branches that wait for branches: who may, what ends such a wait, and that a replay meets it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.errors import CutShort


async def echo(what: str) -> str:
    """A step."""
    return what


@pytest.mark.parametrize("signal", [False, True])
async def test_branches_that_wait_for_each_other_end_their_run(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, *, signal: bool
) -> None:
    """At once, or when the last of the others has ended; it is told who they are, and made up for."""
    handles: dict[str, holdfast.BranchHandle[Any]] = {}

    async def undo() -> None:
        calls.append("undone")

    async def after(run: holdfast.Run, other: str) -> None:
        await run.step(echo, "begun")
        await handles[other]

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        run.on_failure(undo)
        async with run.branches() as branches:
            handles["a"] = branches.start("a", after(run, "b"))
            handles["b"] = branches.start("b", after(run, "a"))
            if signal:
                branches.start("c", run.wait_signal("go"))

    await work(app)
    handle = await client.enqueue(plan.job())
    if signal:
        assert await rests(handle.id) == "signal 'go'"
        await client.signal(handle.id, "go")
    told = "'main/a' for the end of branch 'main/b', 'main/b' for the end of branch 'main/a'"
    with pytest.raises(holdfast.JobFailed, match=f"wait for each other .*{told}"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["undone"]


@pytest.mark.parametrize("above", ["outer", "inner"])
async def test_a_branch_that_awaits_itself_or_one_above_it_is_told_so(
    client: holdfast.Client, work: Any, app: holdfast.App, *, above: str
) -> None:
    """Also while others go on: they could change nothing."""
    handles: dict[str, holdfast.BranchHandle[Any]] = {}

    async def inner() -> None:
        await handles[above]

    async def outer(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            handles["inner"] = branches.start("inner", inner())

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            async with run.branches() as branches:
                handles["outer"] = branches.start("outer", outer(run))
                branches.start("other", run.wait_signal("never"))
        except ExceptionGroup as group:
            return repr(group.exceptions)
        return "not refused"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert "branch 'main/outer/inner' waits for the end of" in await client.wait(handle.id, timeout=20)


async def test_a_timeout_that_strikes_as_the_last_branch_ends_is_no_circle(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Whom it has struck waits no longer, although it has not gone on yet."""

    async def last(run: holdfast.Run, limit: asyncio.Timeout) -> None:
        await run.step(echo, "last")
        limit.reschedule(0.0)
        # The timeout strikes first, and then this branch ends, before anybody else has his turn.
        await asyncio.sleep(0)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            async with asyncio.timeout(None) as limit, run.branches() as branches:
                branches.start("last", last(run, limit))
        except CutShort:
            return "cut short"
        return "not cut"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "cut short"


@pytest.mark.parametrize("starter", ["branch", "task"])
async def test_a_branch_is_started_only_by_the_branch_of_its_block(
    client: holdfast.Client, work: Any, app: holdfast.App, *, starter: str
) -> None:
    """Others would do so in an order that no replay can know, by which two of one name are told apart."""
    given: list[Any] = []

    async def other(run: holdfast.Run, branches: Any) -> str:
        given.append(run.step(echo, "x"))
        try:
            branches.start("x", given[0])
        except holdfast.InputInvalid as error:
            return str(error)
        return "not refused"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        async with run.branches() as branches:
            if starter == "task":
                return await asyncio.create_task(other(run, branches))
            return await branches.start("other", other(run, branches))

    await work(app)
    handle = await client.enqueue(plan.job())
    told = {"branch": "open a block of its own there", "task": "was begun in a task of its own"}
    assert told[starter] in await client.wait(handle.id, timeout=20)
    assert given[0].cr_frame is None


@pytest.mark.parametrize("first", ["block", "handle", "finished"])
async def test_a_timeout_of_a_join_is_met_again_at_that_join_alone(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, *, first: str
) -> None:
    """Not at the first that a replay comes to, and also where nothing is left to wait for by then."""
    lapsing: list[asyncio.Timeout] = []
    passed = asyncio.Event()

    async def slow() -> str:
        await passed.wait()
        lapsing[-1].reschedule(0.0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if first != "finished":
                raise
        return "late"

    async def joins(run: holdfast.Run, told: list[str]) -> None:
        if first == "block":
            async with run.branches() as branches:
                branches.start("quick", run.step(echo, "quick"))
            told.append("quick")
        async with asyncio.timeout(None) as limit, run.branches() as branches:
            lapsing.append(limit)
            late = branches.start("late", run.step(slow))
            if first != "block":
                told.append(await branches.start("quick", run.step(echo, "quick")))
            passed.set()
            if first == "finished":
                told.append(await late)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        told: list[str] = []
        try:
            await joins(run, told)
        except CutShort as cut:
            told.append(cut.what)
        return [*told, await run.wait_signal("go")]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    await client.signal(handle.id, "go", "gone")
    ends = {
        "block": "the end of block 2 of branches in 'main'",
        "handle": "the end of block 1 of branches in 'main'",
        "finished": "the end of branch 'main/late'",
    }
    assert await client.wait(handle.id, timeout=20) == ["quick", ends[first], "gone"]


async def test_a_branch_is_not_told_at_a_join_that_its_record_has_passed(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """At a replay its sibling fails before the join is over: it is told where it was the first time."""
    waiting = asyncio.Event()

    async def note(what: str) -> None:
        calls.append(what)

    async def deep(run: holdfast.Run, levels: int) -> None:
        async with run.branches() as branches:
            branches.start("next", deep(run, levels - 1) if levels else run.step(echo, "end"))

    async def after(run: holdfast.Run, other: holdfast.BranchHandle[Any]) -> None:
        await other
        await run.step(note, "passed")
        try:
            waiting.set()
            await run.wait_signal("never")
        finally:
            await run.step(note, "told")

    async def fail() -> None:
        await waiting.wait()
        msg = "broken"
        raise ValueError(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        try:
            async with run.branches() as branches:
                branches.start("fails", run.step(fail))
                branches.start("after", after(run, branches.start("deep", deep(run, 5))))
        except ExceptionGroup:
            return str(await run.wait_signal("go"))
        return "not failed"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'go'"
    before = [(one.branch, one.place, one.kind) for one in await client.history(handle.id)]
    await client.signal(handle.id, "go", "gone")
    assert await client.wait(handle.id, timeout=20) == "gone"
    assert calls == ["passed", "told"]
    after_all = [(one.branch, one.place, one.kind) for one in await client.history(handle.id)]
    assert set(before) <= set(after_all)


async def test_a_failing_branch_stops_its_siblings_while_the_body_waits(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """The body itself is not stopped: it is told at the end of its block, at every replay."""

    async def charge() -> None:
        msg = "declined"
        raise ValueError(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[Any]:
        told: list[Any] = []
        try:
            async with run.branches() as branches:
                branches.start("charge", run.step(charge))
                branches.start("pack", run.wait_signal("packed"))
                told.append(await run.wait_signal("approved"))
        except ExceptionGroup as group:
            told += [repr(error) for error in group.exceptions]
        return [*told, await run.wait_signal("go")]

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await rests(handle.id) == "signal 'approved'"
    stopped = [(one.branch, one.kind) for one in await client.history(handle.id) if one.branch == "main/pack"]
    assert stopped == [("main/pack", "cancel")]
    await client.signal(handle.id, "approved", "yes")
    await client.signal(handle.id, "go", "gone")
    assert await client.wait(handle.id, timeout=20) == ["yes", "ValueError('declined')", "gone"]
