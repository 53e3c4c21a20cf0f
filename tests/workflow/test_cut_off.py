"""What an attempt that is cut off leaves to the next one: the same way, the same tries, the same end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe
from holdfast.workflow import company

SOON = holdfast.Constant(timedelta(milliseconds=10))
LATER = holdfast.Constant(timedelta(seconds=1.5))


@pytest.fixture
def shown(client: holdfast.Client, eventually: Any) -> Any:
    """Waits until a step of a run is shown as running: ``await shown(run_id)``."""

    async def wait(run_id: int) -> None:
        async def is_shown() -> bool:
            return any(one.state == "running" for one in await client.history(run_id))

        await eventually(is_shown)

    return wait


async def fail_when_stopped(begun: asyncio.Event) -> None:
    """Make an error of our own out of being cancelled."""
    begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        msg = "connection closed"
        raise OSError(msg) from None


@pytest.mark.parametrize("turn", ["patch", "timeout"])
async def test_what_decided_the_way_to_a_step_that_was_cut_off_comes_out_the_same(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], shown: Any, turn: str
) -> None:
    """The step is shown as running, which must not be in the record before how the code came to it."""

    async def once_for_ever(what: str) -> str:
        calls.append(what)
        if calls.count(what) == 1 and what != "charge":
            await asyncio.Event().wait()
        return what

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        if turn == "patch":
            if run.patched("check"):
                await run.step(once_for_ever, "slow")
            return await run.step(once_for_ever, "charge")
        try:
            async with asyncio.timeout(0.05):
                return await run.step(once_for_ever, "quote")
        except TimeoutError:
            return await run.step(once_for_ever, "slow")

    first = await work(app)
    handle = await client.enqueue(plan.job())
    await shown(handle.id)
    await first.stop(0.0)
    await work(app)
    assert await client.wait(handle.id, timeout=20) == ("charge" if turn == "patch" else "slow")
    assert calls == (["slow", "slow", "charge"] if turn == "patch" else ["quote", "slow", "slow"])


async def test_what_was_registered_behind_a_sleep_is_made_up_for_too(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lapse: Any
) -> None:
    """The last attempt ends in a step; what makes up for it only has the record."""
    stuck = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "ship":
            stuck.set()
            await asyncio.Event().wait()

    @app.workflow(max_attempts=1)
    async def order(run: holdfast.Run) -> None:
        await run.step(do, "charge")
        run.on_failure(do, "refund")
        await run.sleep(0.01)
        run.on_failure(do, "call back")
        await run.step(do, "ship")

    process = await work(app)
    handle = await client.enqueue(order.job())
    await stuck.wait()
    lapse(process)
    with pytest.raises(holdfast.JobFailed, match="timed out after"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "ship", "call back", "refund"]


@pytest.mark.parametrize("where", ["main", "branch"])
async def test_an_error_that_a_step_makes_of_a_stop_costs_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], where: str
) -> None:
    """As one of a handler's: the next attempt calls it again."""
    begun = asyncio.Event()

    async def grumble() -> str:
        calls.append("step")
        if len(calls) == 1:
            await fail_when_stopped(begun)
        return "done"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        if where == "main":
            return await run.step(grumble)
        async with run.branches() as branches:
            one = branches.start("one", run.step(grumble))
        return one.result()

    first = await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await first.stop(0.0)
    await work(app)
    assert await client.wait(handle.id, timeout=20) == "done"
    assert calls == ["step", "step"]
    assert (await client.job(handle.id)).failures == 0


async def test_a_step_that_makes_an_error_of_a_cancel_does_not_fail_its_run(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """The run is cancelled, and makes up for what it did."""
    begun = asyncio.Event()

    async def undo() -> None:
        calls.append("undo")

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        run.on_failure(undo)
        await run.step(fail_when_stopped, begun)

    await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["undo"]


async def test_a_drain_costs_a_step_no_try(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], shown: Any
) -> None:
    """However long it ran: that it was shown as running is no reason to count it."""

    async def fetch() -> str:
        calls.append("fetch")
        if len(calls) == 1:
            await asyncio.Event().wait()
        if len(calls) == 2:
            msg = "not now"
            raise OSError(msg)
        return "done"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        return await run.step(fetch, max_attempts=2, retry=SOON)

    first = await work(app)
    handle = await client.enqueue(plan.job())
    await shown(handle.id)
    await first.stop(0.0)
    await work(app)
    assert await client.wait(handle.id, timeout=20) == "done"
    assert len(calls) == 3


async def test_a_cancel_between_two_tries_to_undo_leaves_a_failed_run_failed(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """It failed before anybody cancelled it, and its error is what its caller is told."""

    async def do(what: str) -> None:
        calls.append(what)
        if calls == ["charge", "refund"]:
            msg = "not now"
            raise OSError(msg)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "refund", max_attempts=2, retry=LATER)
        await run.step(do, "charge")
        msg = "a bug"
        raise KeyError(msg)

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobFailed, match="a bug"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["charge", "refund", "refund"]


async def test_compensation_waits_for_a_step_of_a_branch(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    probe: Probe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may take longer to stop than code that is in no step is given."""
    monkeypatch.setattr(company, "LONGEST_UNWINDING", 0.05)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def charge() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on.wait()
        calls.append("charged")
        return "receipt"

    async def refund(receipt: str) -> None:
        calls.append(f"refunded {receipt}")

    async def pay(run: holdfast.Run) -> None:
        run.on_failure(refund, await run.step(charge))

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("pay", pay(run))

    await work(app)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await client.cancel(handle.id)
    await probe.wait_for("cancel.delivered")
    asyncio.get_running_loop().call_later(0.5, go_on.set)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charged", "refunded receipt"]
