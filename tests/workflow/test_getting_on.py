"""The timeout of a run is how long it may go without getting on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.cli.wiring import WorkerProcess

SOON = holdfast.Constant(timedelta(milliseconds=10))


@pytest.fixture
def pass_time() -> Callable[[WorkerProcess, float], None]:
    """Lets so many seconds pass on the clock that ends handlers: ``pass_time(process, 40)``."""

    def forward(process: WorkerProcess, seconds: float) -> None:
        deadlines = process.worker.slots._performer._deadlines
        deadlines._due = {limit: due - seconds for limit, due in deadlines._due.items()}
        deadlines._ring()

    return forward


async def test_a_run_that_gets_on_may_take_as_long_as_it_likes(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], pass_time: Any
) -> None:
    """Whatever it records: steps, those that are tried again or write themselves, signals, what it undoes."""
    process: WorkerProcess

    async def do(what: str) -> str:
        calls.append(what)
        pass_time(process, 40)
        if calls.count("late") == 1:
            raise OSError("not now")
        return what

    async def write(connection: Any, what: str) -> None:
        await connection.execute("select 1")
        await do(what)

    @app.workflow(max_attempts=1, timeout=60)
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo one")
        run.on_failure(do, "undo two")
        await run.step(do, "one")
        await run.step(do, "late", max_attempts=2, retry=SOON)
        await run.step(write, "two", transaction=True)
        pass_time(process, 40)
        await run.wait_signal("go")
        run.enqueue(greet.job())
        await run.step(do, "three")
        async with run.branches() as branches:
            for name in ("left", "right"):
                branches.start(name, run.step(do, name))
        raise ValueError("enough")

    @app.workflow
    async def greet(run: holdfast.Run) -> None: ...

    process = await work(app)
    handle = await client.enqueue(order.job())
    await client.signal(handle.id, "go")
    with pytest.raises(holdfast.JobFailed, match="enough"):
        await client.wait(handle.id, timeout=30)
    assert calls[:5] == ["one", "late", "late", "two", "three"]
    assert sorted(calls[5:7]) == ["left", "right"]
    assert calls[7:] == ["undo two", "undo one"]


async def test_a_run_that_does_not_get_on_is_cut_off(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], pass_time: Any
) -> None:
    """What it recorded before gives it no more than its timeout."""
    process: WorkerProcess

    async def do(what: str) -> None:
        calls.append(what)
        pass_time(process, 40)

    async def stick() -> None:
        await do("stuck")
        await do("stuck")
        await asyncio.Event().wait()

    @app.workflow(max_attempts=2, timeout=60, retry=SOON)
    async def order(run: holdfast.Run) -> None:
        await run.step(do, "one")
        await run.step(stick)

    process = await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match=r"attempts exhausted \(2 of 2\): timed out after 60 s"):
        await client.wait(handle.id, timeout=30)
    assert calls == ["one", *["stuck"] * 4]


@pytest.mark.parametrize("hangs", ["a thread", "a coroutine"])
async def test_a_step_without_a_timeout_has_that_of_its_run_although_others_get_on(
    client: holdfast.Client, work: Any, app: holdfast.App, hangs: str
) -> None:
    """One that hangs is not waited for for ever, and the error says for how long it was."""
    go, errors = threading.Event(), list[str]()

    def hang() -> None:
        go.wait(60)

    async def hang_on_loop() -> None:
        await asyncio.Event().wait()

    async def go_on() -> None:
        await asyncio.sleep(0.1)

    @app.workflow(max_attempts=1, timeout=2)
    async def order(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            hanging = branches.start("hangs", caught(run))
            for _ in range(30):
                await run.step(go_on)
        errors.append(hanging.result())

    async def caught(run: holdfast.Run) -> str:
        try:
            await run.step(hang if hangs == "a thread" else hang_on_loop, name="hang")
        except TimeoutError as error:
            return str(error)
        return "nothing"

    await work(app)
    handle = await client.enqueue(order.job())
    await client.wait(handle.id, timeout=30)
    go.set()
    assert errors == ["step 'hang' took longer than 2 s"]


async def test_who_only_looks_for_a_signal_does_not_get_on(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It looks twice a second while another branch is at work, and records nothing by that."""

    async def stick() -> None:
        await asyncio.Event().wait()

    @app.workflow(max_attempts=1, timeout=1.5)
    async def order(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("stuck", run.step(stick, timeout=60))
            await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match=r"timed out after 1.5 s in which it recorded nothing"):
        await client.wait(handle.id, timeout=30)
