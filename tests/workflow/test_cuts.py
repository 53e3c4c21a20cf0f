"""Timeouts of asyncio around what a run asks for: an error like any other, which a replay meets again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import CutShort
from holdfast.testing import ThrowawayDatabase
from holdfast.workflow import cuts

OUTCOMES = "select outcome from holdfast.attempts where job_id = $1 order by attempt"

WRITING = "select true from pg_locks where not granted and relation = 'holdfast.steps'::regclass"


async def forever() -> None:
    """A step that has no end."""
    await asyncio.Event().wait()


async def test_a_timeout_around_a_step_is_caught_as_such_and_replays(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], db: ThrowawayDatabase, rests: Any
) -> None:
    """The run takes the same way after it was suspended, without waiting for the timeout again."""
    passes: list[str] = []

    async def do(what: str) -> str:
        calls.append(what)
        return what

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        passes.append("begun")
        try:
            async with asyncio.timeout(0.05):
                await run.step(forever)
        except TimeoutError as error:
            told = str(error)
        other = await run.step(do, "instead")
        return [told, other, await run.wait_signal("go")]

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.signal(handle.id, "go", "gone")
    told, other, gone = await client.wait(handle.id, timeout=20)
    assert (other, gone) == ("instead", "gone")
    assert "run.step(..., timeout=...)" in told
    assert calls == ["instead"]
    assert len(passes) == 2
    assert [row[0] for row in await db.fetch(OUTCOMES, handle.id)] == ["suspended"]


async def test_a_timeout_that_nobody_catches_fails_the_run_in_words(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """It is made up for, as for any other error of the code."""

    async def undo() -> None:
        calls.append("undo")

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(undo)
        async with asyncio.timeout(0.05):
            await run.step(forever)

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="CutShort: step 'forever' was cut short") as failed:
        await client.wait(handle.id, timeout=20)
    assert "wait_signal(..., timeout=...)" in str(failed.value)
    assert calls == ["undo"]


async def test_a_timeout_around_a_wait_that_stays_in_memory_is_recorded(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Another branch works on meanwhile, so that the run is not suspended."""
    done = asyncio.Event()

    async def hold() -> str:
        await done.wait()
        return "held"

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        async def patient() -> str:
            try:
                async with asyncio.timeout(0.05):
                    return str(await run.wait_signal("never"))
            except CutShort as cut:
                done.set()
                return cut.what

        async with run.branches() as branches:
            first = branches.start("first", patient())
            second = branches.start("second", run.step(hold))
        return [first.result(), second.result(), await run.wait_signal("go")]

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.signal(handle.id, "go", 1)
    assert await client.wait(handle.id, timeout=20) == ["signal 'never'", "held", 1]


async def test_a_timeout_around_branches_stops_them_all(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, rests: Any, eventually: Any
) -> None:
    """As a TaskGroup does; a replay stops them at the same places."""
    lapsing: list[asyncio.Timeout] = []

    async def quick() -> str:
        return "quick"

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        try:
            async with asyncio.timeout(None) as limit, run.branches() as branches:
                lapsing.append(limit)
                first = branches.start("first", run.step(quick))
                branches.start("second", run.step(forever))
        except TimeoutError:
            return [first.result(), await run.step(quick), await run.wait_signal("go")]
        return []

    await work(app)
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select true from holdfast.steps where name = 'quick'"))
    lapsing[0].reschedule(0.0)
    await rests(handle.id)
    await client.signal(handle.id, "go", 1)
    assert await client.wait(handle.id, timeout=20) == ["quick", "quick", 1]


async def test_a_run_that_goes_on_inside_of_an_expired_timeout_is_told_where_to_catch_it(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Nothing can be asked there any more; a loop that tries again does not spin."""

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        async with asyncio.timeout(0.05):
            while True:
                try:
                    await run.step(forever)
                except TimeoutError:
                    continue

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="catch the TimeoutError outside of the"):
        await client.wait(handle.id, timeout=20)


async def test_a_timeout_that_strikes_while_a_step_is_written_leaves_it_done(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    db: ThrowawayDatabase,
    calls: list[str],
    eventually: Any,
) -> None:
    """The write is seen to its end, so that the code and the record agree."""
    lapsing: list[asyncio.Timeout] = []

    async def do() -> str:
        calls.append("do")
        return "done"

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        async with asyncio.timeout(None) as limit:
            lapsing.append(limit)
            return await run.step(do)

    await work(app)
    async with db.database.connection() as connection, connection.transaction():
        await connection.execute(f'lock table "{db.schema}".steps in exclusive mode')
        handle = await client.enqueue(order.job())
        await eventually(lambda: has_begun(lapsing))
        await eventually(lambda: db.value(WRITING))
        lapsing[0].reschedule(0.0)
        await eventually(lambda: has_expired(lapsing[0]))
    assert await client.wait(handle.id, timeout=20) == "done"
    assert calls == ["do"]


async def has_begun(lapsing: list[asyncio.Timeout]) -> bool:
    """Whether the code has come to its timeout."""
    return bool(lapsing)


async def has_expired(limit: asyncio.Timeout) -> bool:
    """Whether a timeout has struck."""
    return limit.expired()


async def test_a_timeout_that_strikes_while_a_wait_asks_ends_the_wait(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, eventually: Any
) -> None:
    """The question is answered first; then the wait is over, and not slept through."""
    lapsing: list[asyncio.Timeout] = []
    done = asyncio.Event()

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        async def patient() -> str:
            try:
                async with asyncio.timeout(None) as limit:
                    lapsing.append(limit)
                    return str(await run.wait_signal("never"))
            except CutShort as cut:
                done.set()
                return cut.what

        async with run.branches() as branches:
            first = branches.start("first", patient())
            branches.start("second", run.step(done.wait))
        return first.result()

    await work(app)
    async with db.database.connection() as connection, connection.transaction():
        await connection.execute(f'lock table "{db.schema}".signals in access exclusive mode')
        handle = await client.enqueue(order.job())
        await eventually(lambda: has_begun(lapsing))
        await eventually(lambda: db.value(WRITING.replace("steps", "signals")))
        lapsing[0].reschedule(0.0)
        await eventually(lambda: has_expired(lapsing[0]))
    assert await client.wait(handle.id, timeout=20) == "signal 'never'"


async def test_a_timeout_that_was_caught_is_remembered_through_a_sleep(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Nothing is written between the two but the sleep itself."""

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        told = "nothing"
        try:
            async with asyncio.timeout(0.05):
                await run.step(forever)
        except TimeoutError:
            told = "timeout"
        await run.sleep(1.5)
        return told

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    assert await client.wait(handle.id, timeout=20) == "timeout"


async def test_a_child_that_ends_after_its_timeout_was_caught_changes_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """The run sleeps meanwhile; its code takes the same way again."""
    lapsing: list[asyncio.Timeout] = []
    go_on = asyncio.Event()

    @app.job
    async def slow() -> str:
        await go_on.wait()
        return "child"

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        try:
            async with asyncio.timeout(None) as limit, run.branches() as branches:
                lapsing.append(limit)
                branches.start("other", run.step(forever))
                return str(await run.child(slow.job()))
        except TimeoutError:
            await run.sleep(1.5)
        return "timeout"

    await work(app)
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select true from holdfast.steps where child_id is not null"))
    lapsing[0].reschedule(0.0)
    await rests(handle.id)
    go_on.set()
    assert await client.wait(handle.id, timeout=20) == "timeout"


async def test_a_timeout_that_strikes_while_the_database_stalls_ends_the_attempt(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    db: ThrowawayDatabase,
    calls: list[str],
    eventually: Any,
    rests: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows whether the step will be recorded: the code does not go on as if it were not."""
    monkeypatch.setattr(cuts, "GRACE", 0.1)
    lapsing: list[asyncio.Timeout] = []

    async def do(what: str) -> str:
        calls.append(what)
        return what

    @app.workflow(retry=holdfast.Constant(timedelta(milliseconds=10)))
    async def order(run: holdfast.Run) -> str:
        try:
            async with asyncio.timeout(None) as limit:
                lapsing.append(limit)
                told = await run.step(do, "first")
        except TimeoutError:
            told = await run.step(do, "instead")
        await run.wait_signal("go")
        return told

    await work(app)
    async with db.database.connection() as connection, connection.transaction():
        await connection.execute(f'lock table "{db.schema}".steps in exclusive mode')
        handle = await client.enqueue(order.job())
        await eventually(lambda: has_begun(lapsing))
        await eventually(lambda: db.value(WRITING))
        lapsing[0].reschedule(0.0)
        await eventually(lambda: db.fetch(OUTCOMES, handle.id))
    await rests(handle.id)
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == "first"
    assert set(calls) == {"first"}
