"""What a program sees of its runs and does to them; async and sync alike."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.model.run import RunNode, Suspension
from holdfast.testing import ThrowawayDatabase

Call = Callable[..., Any]


@pytest.fixture
def app() -> holdfast.App:
    """Orders that wait for an approval, with a child that waits for a courier."""
    app = holdfast.App()

    async def charge(order_id: int) -> str:
        return f"charged {order_id}"

    async def pack(order_id: int) -> str:
        return f"packed {order_id}"

    @app.workflow(version="1")
    async def ship(run: holdfast.Run, order_id: int) -> str:
        courier: str = await run.wait_signal(f"courier {order_id}")
        return courier

    @app.job
    async def weigh(order_id: int) -> int:
        if order_id < 0:
            msg = "less than nothing"
            raise holdfast.Poison(msg)
        return order_id

    @app.workflow(version="2")
    async def order(run: holdfast.Run, order_id: int) -> list[Any]:
        paid = await run.step(charge, order_id)
        async with run.branches() as branches:
            packed = branches.start("pack", run.step(pack, order_id))
        await run.wait_signal("approved", timeout=3600)
        weights = await run.children([weigh.job(n) for n in (order_id, -1)], return_failures=True)
        return [paid, packed.result(), weights[0], await run.child(ship.job(order_id=order_id))]

    return app


@pytest.fixture
async def rests(client: holdfast.Client, eventually: Any) -> Any:
    """Waits until a run waits for what is named: ``await rests(run_id, "signal 'approved'")``."""

    async def wait(run_id: int, reason: str) -> Any:
        async def awaited() -> bool:
            node = await client.run(run_id)
            waits = node.run.suspension
            return node.run.state == "waiting" and waits is not None and reason in waits.reason

        return await eventually(awaited)

    return wait


def steps(node: RunNode) -> list[str]:
    """The names and states of a run's steps."""
    return [f"{step.name} {step.state}" for step in node.steps]


async def test_a_program_sees_the_tree_of_its_run(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Its steps, branches and children with their states, what it waits for, and why."""
    await work(app)
    handle = await client.enqueue(app.request("order@2", {"order_id": 7}))
    await rests(handle.id, "approved")
    node = await call("run", handle.id)
    assert isinstance(node, RunNode)
    assert steps(node) == ["charge completed", "pack completed", "approved running"]
    assert [step.branch for step in node.steps] == ["main", "main/pack", "main"]
    waits = node.run.suspension
    assert isinstance(waits, Suspension)
    assert (waits.signals, waits.paused, waits.reason) == (["approved"], False, "signal 'approved'")
    assert node.run.run_at == waits.wake_at
    assert re.fullmatch(
        r"it waits for signal 'approved', until [-0-9]+ [0-9:]+ UTC at the latest: "
        rf"`holdfast runs signal {handle.id} approved` sends the signal",
        node.why or "",
    )
    await call("signal", handle.id, "approved")
    await rests(handle.id, "child ")
    child = (await client.run(handle.id)).families[1].id
    await rests(child, "courier")
    node = await call("run", handle.id)
    weighed, shipped = node.families
    assert (weighed.states, shipped.states) == ({"completed": 1, "failed": 1}, {"waiting": 1})
    assert [member.run.state for member in weighed.members] == ["completed", "failed"]
    assert [member.is_run for member in weighed.members] == [False, False]
    (member,) = shipped.members
    assert (member.run.kind, member.run.parent_id, member.run.run_at) == ("ship@1", handle.id, None)
    assert (await call("job", child)).run_at is None
    sends = f"`holdfast runs signal {child} 'courier 7'` sends the signal"
    assert member.why == f"it waits for signal 'courier 7': {sends}"
    flat = await call("run", handle.id, depth=0)
    assert flat.families[0].members == ()
    assert flat.families[0].left_out == 2


async def test_a_program_lists_its_runs_by_what_they_are_and_wait_for(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """By kind with and without a version, state, queue, signal and pause; plain jobs are not among them."""
    await work(app)
    first, second = [(await client.enqueue(app.request("order@2", {"order_id": n}))).id for n in (1, 2)]
    await client.wait((await client.enqueue(app.request("weigh", {"order_id": 1}))).id, timeout=20)
    for run_id in (first, second):
        await rests(run_id, "approved")
    await client.pause(second)

    async def ids(**chosen: Any) -> list[int]:
        return [run.id for run in await call("runs", holdfast.RunFilter(**chosen))]

    assert await ids() == [second, first]
    assert await ids(kind="order") == await ids(kind="order@2") == [second, first]
    assert await ids(kind="order@1") == await ids(queue="elsewhere") == await ids(signal="courier") == []
    assert await ids(signal="approved") == await ids(states=(holdfast.JobState.WAITING,)) == [second, first]
    assert await ids(paused=True) == [second]
    assert await ids(states=(holdfast.JobState.COMPLETED,)) == []
    assert [run.id for run in await call("runs", limit=1)] == [second]
    assert [run.id for run in await call("runs", before=second)] == [first]


async def test_a_program_reads_signals_and_history_page_by_page(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Signals that nobody has read yet, the steps in order, and the log of their calls."""
    await work(app)
    handle = await client.enqueue(app.request("order@2", {"order_id": 7}))
    await rests(handle.id, "approved")
    await call("signal", handle.id, "courier", {"secret": 1}, key="k")
    (unread,) = await call("signals", handle.id)
    assert (unread.name, unread.key) == ("courier", "k")
    first = await call("history", handle.id, limit=2)
    assert [(step.branch, step.name, step.result) for step in first] == [
        ("main", "charge", "charged 7"),
        ("main/pack", "pack", "packed 7"),
    ]
    (last,) = await call("history", handle.id, after=(first[-1].branch, first[-1].place))
    assert (last.name, last.kind, last.state) == ("approved", "signal", "running")
    (charged,) = await call("activities", handle.id, limit=1)
    (packed,) = await call("activities", handle.id, after=charged.id)
    assert (charged.step, packed.step, packed.parameters) == ("charge", "pack", {"args": [7]})


async def test_a_program_is_told_why_nothing_was_done_to_a_run(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """No such run, a plain job, a run that has ended, one that is not paused, a step that did not finish."""
    await work(app)
    for verb in ("run", "pause", "resume", "signals", "history", "activities"):
        with pytest.raises(holdfast.JobNotFound):
            await call(verb, 4711)
    plain = (await client.enqueue(app.request("weigh", {"order_id": 1}), delay=3600)).id
    looks = (("run",), ("signals",), ("history",), ("activities",))
    for verb, *arguments in (*looks, ("pause",), ("resume",), ("signal", "go")):
        with pytest.raises(
            holdfast.NotARun, match=f"job {plain} is not a run: its kind 'weigh' is no workflow"
        ):
            await call(verb, plain, *arguments)
    with pytest.raises(holdfast.NotARun):
        await call("fork", plain, at="charge")
    run_id = (await client.enqueue(app.request("order@2", {"order_id": 7}))).id
    await rests(run_id, "approved")
    with pytest.raises(holdfast.StateConflict, match="is waiting: it cannot be resumed; it is not paused"):
        await call("resume", run_id)
    with pytest.raises(
        holdfast.StepNotFound,
        match=r"no finished step 'approved' in branch 'main': finished are charge, pack \(branch main/pack\)",
    ):
        await call("fork", run_id, at="approved")
    await client.cancel(run_id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(run_id, timeout=20)
    with pytest.raises(holdfast.StateConflict, match="it cannot be paused; it has ended already"):
        await call("pause", run_id)
    with pytest.raises(holdfast.StateConflict, match=f"`holdfast runs retry {run_id}` takes it up"):
        await call("resume", run_id)
    with pytest.raises(holdfast.RunEnded):
        await call("signal", run_id, "approved")


async def test_a_fork_says_why_in_the_audit_log(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """In a branch as well as in the run's own; the fork waits where the other one waits."""
    await work(app)
    run_id = (await client.enqueue(app.request("order@2", {"order_id": 7}))).id
    await rests(run_id, "approved")
    forked = await call("fork", run_id, at="pack", branch="main/pack", reason="try again")
    await rests(forked.id, "approved")
    assert steps(await call("run", forked.id)) == ["charge completed", "pack completed", "approved running"]
    assert await db.fetch("select actor, action, reason from holdfast.audit_log") == [
        ("application", "run.fork", "try again")
    ]


async def test_nobody_needs_to_know_a_kind_for_its_run_to_be_paused(
    call: Call, client: holdfast.Client, app: holdfast.App
) -> None:
    """Before the first worker has started, a job may be a run; it is held back and hears signals."""
    run_id = (await client.enqueue(app.request("order@2", {"order_id": 7}))).id
    await call("pause", run_id, reason="not yet")
    await call("signal", run_id, "approved")
    node = await call("run", run_id)
    assert (node.is_run, node.run.state, node.steps) == (None, "waiting", ())
    assert node.why == (
        f"it is held back (paused by application: not yet): `holdfast runs resume {run_id}` lets it go on"
    )
    await call("resume", run_id)
    assert "no online worker works on queue" in ((await call("run", run_id)).why or "")


async def test_a_run_of_a_version_that_no_worker_knows_says_which_ones_they_know(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """The sentence names the missing version and what to do."""
    newer = holdfast.App()

    @newer.workflow(kind="order", version="3")
    async def order(run: holdfast.Run) -> None: ...

    await work(newer)
    run_id = (await client.enqueue(app.request("order@2", {"order_id": 7}))).id
    assert (await client.run(run_id)).why == (
        "of 1 worker online in queue 'default' none knows 'order@2', only order@3: "
        "deploy that version too, or name it in also= of a newer one"
    )


async def test_a_run_whose_code_was_changed_says_so(
    call: Call, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """It is kept, found among the paused ones, and goes on once the code fits again."""
    changed = holdfast.App()

    async def refund() -> None: ...

    @changed.workflow(kind="order", version="2")
    async def order(run: holdfast.Run, order_id: int) -> None:
        await run.step(refund, name=f"refund {order_id}")

    first = await work(app)
    run_id = (await client.enqueue(app.request("order@2", {"order_id": 7}))).id
    await rests(run_id, "approved")
    await first.stop(0.0)
    second = await work(changed)
    await call("signal", run_id, "approved")
    await rests(run_id, "NonDeterministicRun")
    why = (await call("run", run_id)).why
    assert why.startswith(f"NonDeterministicRun: run {run_id} recorded step 'charge' at place 0")
    assert why.endswith(f"then resume the run: `holdfast runs resume {run_id}`")
    assert [run.id for run in await call("runs", holdfast.RunFilter(paused=True))] == [run_id]
    await second.stop(0.0)
    await work(app)
    await call("resume", run_id)
    await rests(run_id, "child ")


async def test_a_run_that_is_paused_while_it_runs_says_that_it_parks(
    call: Call, client: holdfast.Client, work: Any
) -> None:
    """Until its step is done, it goes on."""
    app, begun, go_on = holdfast.App(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await go_on.wait()

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(slow)

    await work(app)
    run_id = (await client.enqueue(plan.job())).id
    await begun.wait()
    await call("pause", run_id)
    assert (await call("run", run_id)).why == "it parks at its next step (paused by application)"
    await call("resume", run_id)
    assert (await call("run", run_id)).why is None
    go_on.set()
    await client.wait(run_id, timeout=20)
