"""What nobody expects of a run's code, and what becomes of it: no worker is hurt, nothing is done twice."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))


async def echo(what: Any) -> Any:
    """A step."""
    return what


@pytest.mark.parametrize("where", ["step", "thread", "transaction", "branch", "run"])
@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
async def test_what_ends_a_program_ends_only_its_run(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    ends: type[BaseException],
    where: str,
) -> None:
    """It is an error like any other: made up for, and the worker goes on."""

    async def undo() -> None:
        calls.append("undo")

    async def leave(_connection: Any = None) -> None:
        raise ends(3)

    def leave_thread() -> None:
        raise ends(3)

    async def branch() -> None:
        raise ends(3)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        run.on_failure(undo)
        match where:
            case "step":
                await run.step(leave)
            case "thread":
                await run.step(leave_thread)
            case "transaction":
                await run.step(leave, transaction=True)
            case "branch":
                async with run.branches() as branches:
                    branches.start("leaves", branch())
        raise ends(3)

    @app.workflow
    async def other(run: holdfast.Run) -> str:
        return await run.step(echo, "alive")

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match=f"{ends.__name__}|BaseExceptionGroup"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["undo"]
    assert (await client.job(handle.id)).attempt == 1
    assert await client.wait((await client.enqueue(other.job())).id, timeout=20) == "alive"


@pytest.mark.parametrize(
    ("verb", "options", "named"),
    [
        ("step", {"colour": 1}, "colour is 1: there is no such option here; there are .*timeout"),
        ("step", {"retry": 5}, "retry is 5: give Exponential, Linear or Constant, or Custom for a kind"),
        ("step", {"max_attempts": True}, "max_attempts is True: give a whole number"),
        ("step", {"kwargs": 5}, "kwargs is 5: give a dictionary"),
        ("child", {"colour": 1}, "colour is 1: there is no such option here; there are .*queue"),
        ("child", {"unique_key": "k"}, "unique_key is 'k': there is no such option here"),
        ("child", {"parent_id": 77}, "parent_id is 77: there is no such option here"),
        ("children", {"unique_key": "k"}, "unique_key is 'k': there is no such option here"),
        ("enqueue", {"unique_key": "k"}, "unique_key is 'k': there is no such option here"),
        ("sleep_until", "2030-01-01", "moment is '2030-01-01': give a datetime"),
        ("progress", ("half",), "fraction is 'half': give a number from 0 to 1"),
        ("progress", (0.5, 7), "note is 7: give a string"),
    ],
)
async def test_what_is_asked_for_wrongly_is_named(
    client: holdfast.Client, work: Any, app: holdfast.App, verb: str, options: Any, named: str
) -> None:
    """Nothing of it is passed over in silence; the code may catch it, else it ends the run."""

    @app.job
    async def weigh() -> None:
        """Nobody runs it here."""

    async def asked(run: holdfast.Run) -> None:
        match verb:
            case "step":
                await run.step(echo, 1, **options)
            case "child":
                await run.child(weigh.job(), **options)
            case "children":
                await run.children([weigh.job()], **options)
            case "enqueue":
                run.enqueue(weigh.job(), **options)
            case "sleep_until":
                await run.sleep_until(options)
            case "progress":
                run.progress(*options)

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        with pytest.raises(holdfast.OptionInvalid, match=named):
            await asked(run)
        return "told"

    await work(app)
    assert await client.wait((await client.enqueue(plan.job())).id, timeout=20) == "told"


async def test_two_branches_that_wait_for_the_same_signal_get_one_each(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """However close their looks are: a signal is consumed once."""

    @app.workflow
    async def plan(run: holdfast.Run) -> list[Any]:
        async with run.branches() as branches:
            asked = [branches.start(f"b{n}", run.wait_signal("go")) for n in range(10)]
        return sorted(one.result() for one in asked)

    handles = await client.enqueue_many([plan.job() for _ in range(5)])
    for handle in handles:
        for n in range(10):
            await client.signal(handle.id, "go", n)
    await work(app)
    for handle in handles:
        assert await client.wait(handle.id, timeout=20) == list(range(10))


async def test_what_comes_before_a_step_in_a_transaction_is_recorded_before_it(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """Times, patches and jobs to enqueue are not missing where the step behind them is recorded."""

    @app.job(queue="elsewhere")
    async def mail() -> None: ...

    async def look(connection: asyncpg.Connection[Any]) -> list[str]:
        recorded = await connection.fetch(f'select name from "{db.schema}".steps order by place')  # noqa: S608
        return [row["name"] for row in recorded]

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        run.now()
        run.patched("new way")
        run.enqueue(mail.job())
        return await run.step(look, transaction=True)

    await work(app, queues=("default",))
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == ["now", "new way", "mail"]
    assert await db.value("select count(*) from holdfast.jobs where kind = 'mail'") == 1


async def test_what_a_step_in_a_transaction_enqueues_commits_with_it(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """A try that fails enqueues nothing; the one that succeeds enqueues once."""

    @app.job(queue="elsewhere")
    async def mail(n: int) -> None: ...

    tries: list[int] = []

    async def order(connection: asyncpg.Connection[Any]) -> None:
        tries.append(1)
        await client.enqueue(mail.job(n=len(tries)), connection=connection)
        if len(tries) == 1:
            msg = "after the enqueue"
            raise ConnectionError(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(order, transaction=True, max_attempts=2, retry=SOON)

    await work(app, queues=("default",))
    handle = await client.enqueue(plan.job())
    await client.wait(handle.id, timeout=20)
    assert await db.fetch("select args ->> 'n' from holdfast.jobs where kind = 'mail'") == [("2",)]


async def test_a_pause_is_seen_by_a_step_in_a_transaction(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, calls: list[str]
) -> None:
    """The run parks behind it, as behind any other step."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_connection: Any) -> None:
        begun.set()
        await go_on.wait()

    async def after() -> None:
        calls.append("after")

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(slow, transaction=True)
        await run.step(after)

    await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.pause(handle.id)
    go_on.set()
    await rests(handle.id)
    assert calls == []


@pytest.mark.parametrize("misuse", ["coroutine", "request", "sync", "blob", "slash", "late", "function"])
async def test_misuse_is_told_in_words_that_say_what_to_do(
    client: holdfast.Client, work: Any, app: holdfast.App, misuse: str
) -> None:
    """The run fails at once, with the name of what was wrong."""

    @app.job
    async def mail() -> None: ...

    def sync(_connection: Any) -> None: ...

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            pass
        match misuse:
            case "coroutine":
                await run.step(echo(1))  # type: ignore[call-overload]
            case "request":
                await run.step(mail.job())  # type: ignore[call-overload]
            case "sync":
                await run.step(sync, transaction=True)
            case "blob":
                await run.blob(echo, 1, transaction=True)
            case "slash":
                async with run.branches() as branches:
                    branches.start("a/b", echo(1))
            case "late":
                branches.start("late", echo(1))
            case "function":
                async with run.branches() as branches:
                    branches.start("pack", echo)  # type: ignore[arg-type]

    told = {
        "coroutine": "without calling it, then its arguments",
        "request": "enqueue 'mail' with run.child",
        "sync": "transaction of step 'sync' is True: a sync function cannot share its transaction",
        "blob": "a blob cannot share its transaction",
        "slash": "name is 'a/b': leave out / and #",
        "late": "after its `async with run.branches",
        "function": "branch 'pack' was given .* call the async function",
    }
    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed):
        await client.wait(handle.id, timeout=20)
    assert re.search(told[misuse], (await client.job(handle.id)).error or "")
