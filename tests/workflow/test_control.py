"""What is done to runs from outside, and how they end: pause, cancel, retry, fork, compensation, outbox."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def echo(what: Any) -> Any:
    """A step."""
    return what


async def test_a_paused_run_stays_asleep_until_it_is_resumed(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """Neither its signal nor its time wakes it; at the resume it finds both."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go", timeout=3600)

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    await client.pause(handle.id, reason="audit")
    await client.signal(handle.id, "go", "late")
    assert await rests(handle.id) == "paused by application: audit"
    assert await db.value("select run_at = 'infinity' from holdfast.live_jobs")
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == "late"
    actions = await db.fetch("select action, reason from holdfast.audit_log order by id")
    assert actions == [("run.pause", "audit"), ("run.resume", None)]


async def test_a_running_run_parks_at_its_next_step(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """The step under way is finished; a resume goes on behind it."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        calls.append("slow")
        return "slow"

    async def after() -> str:
        calls.append("after")
        return "after"

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        return [await run.step(slow), await run.step(after)]

    await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.pause(handle.id)
    go_on.set()
    assert await rests(handle.id) == "paused by application"
    assert calls == ["slow"]
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["slow", "after"]
    assert calls == ["slow", "after"]


async def test_a_paused_run_parks_before_the_next_try_of_a_step(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """Rests too short to sleep through do not keep it going; a resume goes on with the same step."""
    begun, go_on, mended = asyncio.Event(), asyncio.Event(), False

    async def poll() -> str:
        calls.append("poll")
        begun.set()
        await go_on.wait()
        if not mended:
            raise OSError
        return "found"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        return await run.step(poll, retry=holdfast.Constant(timedelta(milliseconds=10)), max_attempts=10_000)

    await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.pause(handle.id)
    go_on.set()
    assert await rests(handle.id) == "paused by application"
    assert calls == ["poll"]
    mended = True
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == "found"


@pytest.mark.parametrize("then", ["step", "child"])
async def test_a_paused_run_parks_a_branch_whose_signal_comes_while_another_works(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    rests: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    then: str,
) -> None:
    """It waits in memory, and takes its signal; what comes behind that waits for the resume."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await go_on.wait()

    async def note(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def leaf(run: holdfast.Run) -> None:
        await run.step(note, "child")

    async def patient(run: holdfast.Run) -> None:
        await run.wait_signal("go")
        await (run.step(note, "step") if then == "step" else run.child(leaf.job()))

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("patient", patient(run))
            branches.start("slow", run.step(slow))

    await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.pause(handle.id)
    await client.signal(handle.id, "go")
    taken = "select true from holdfast.steps where kind = 'signal' and state = 'completed'"
    await eventually(lambda: db.value(taken))
    go_on.set()
    assert await rests(handle.id) == "paused by application"
    assert calls == []
    assert await db.value("select count(*) from holdfast.jobs") == 1
    await client.resume(handle.id)
    await client.wait(handle.id, timeout=20)
    assert calls == [then]


async def test_a_pause_reaches_child_runs(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """And so does the resume."""

    @app.workflow
    async def child(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    @app.workflow
    async def parent(run: holdfast.Run) -> Any:
        return await run.child(child.job())

    await work(app)
    handle = await client.enqueue(parent.job())
    await rests(handle.id)
    child_id = await db.value("select job_id from holdfast.live_jobs where parent_id = $1", handle.id)
    await rests(child_id)
    await client.pause(handle.id)
    assert await db.fetch("select paused from holdfast.suspensions") == [(True,), (True,)]
    await client.signal(child_id, "go", 1)
    assert await rests(child_id) == "paused by application"
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == 1


async def test_what_cannot_be_paused_or_resumed_is_refused(
    client: holdfast.Client, app: holdfast.App
) -> None:
    """An unknown run, and one that is not paused."""

    @app.workflow
    async def plan(run: holdfast.Run) -> None: ...

    with pytest.raises(holdfast.JobNotFound):
        await client.pause(4711)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.StateConflict, match="is available: it cannot be resumed; it is not paused"):
        await client.resume(handle.id)


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_a_cancelled_run_makes_up_for_its_steps_in_reverse(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, when: str
) -> None:
    """Whether it waits or is in a step: what was registered runs, the last one first."""
    busy = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)

    async def hang() -> None:
        busy.set()
        await asyncio.Event().wait()

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        for what in ("charge", "pack"):
            run.on_failure(do, f"undo {what}", name=f"undo {what}")
            await run.step(do, what)
        if when == "waiting":
            await run.wait_signal("never")
        else:
            await run.step(hang)

    await work(app)
    handle = await client.enqueue(order.job())
    if when == "waiting":
        await rests(handle.id)
    else:
        await busy.wait()
    assert not await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "pack", "undo pack", "undo charge"]
    made_up = [one.name for one in await client.history(handle.id) if one.branch == "compensation"]
    assert made_up == ["undo pack", "undo charge"]


async def test_a_cancelled_run_that_sleeps_without_a_record_makes_up(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """What was registered runs though no step was called and its wait has no end."""

    async def do(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "release")
        await run.wait_signal("paid")

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    assert not await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["release"]


async def test_a_failed_run_makes_up_for_its_steps_and_keeps_its_error(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """A compensation that fails is told of, and the others run."""

    async def do(what: str) -> None:
        calls.append(what)
        if what == "undo b":
            msg = "cannot be undone"
            raise OSError(msg)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo a", name="undo a")
        run.on_failure(do, "undo b", name="undo b")
        msg = "the end"
        raise ValueError(msg)

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(
        holdfast.JobFailed,
        match="ValueError: the end; compensation 'undo b' failed: OSError: cannot be undone",
    ):
        await client.wait(handle.id, timeout=20)
    assert calls == ["undo b", "undo a"]
    with pytest.raises(holdfast.StateConflict):
        await client.retry(handle.id)


async def test_compensation_goes_on_after_its_worker_was_lost(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, lose: Any
) -> None:
    """A cancelled run is not given up half undone."""
    begun = asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "undo a" and calls.count(what) == 1:
            begun.set()
            await asyncio.Event().wait()

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo a", name="undo a")
        run.on_failure(do, "undo b", name="undo b")
        await run.step(do, "both")
        await run.wait_signal("never")

    await work(app, ttl=1.0)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.cancel(handle.id)
    await begun.wait()
    await lose()
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=30)
    assert calls == ["both", "undo b", "undo a", "undo a"]


async def test_a_retried_run_goes_on_from_its_failed_step(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """What had succeeded is not done again."""

    async def do(what: str) -> str:
        calls.append(what)
        if what == "second" and calls.count("second") == 1:
            msg = "for now"
            raise RuntimeError(msg)
        return what

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        return [await run.step(do, what) for what in ("first", "second", "third")]

    await work(app)
    handle = await client.enqueue(plan.job())
    with pytest.raises(holdfast.JobFailed, match="for now"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["first", "second", "third"]
    assert calls == ["first", "second", "second", "third"]


async def test_a_fork_remembers_up_to_its_step(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """A new run, with the values and results of the old one up to there, goes its own way behind it."""

    async def do(what: str) -> str:
        calls.append(what)
        return f"{what} {len(calls)}"

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        key = str(run.uuid())
        return [key, await run.step(do, "a", name="a"), await run.step(do, "b", name="b")]

    await work(app)
    handle = await client.enqueue(plan.job())
    first = await client.wait(handle.id, timeout=20)
    forked = await client.fork(handle.id, at="a")
    assert await client.wait(forked.id, timeout=20) == [first[0], "a 1", "b 3"]
    assert (await client.job(forked.id)).meta == {"forked_from": handle.id}
    with pytest.raises(holdfast.StepNotFound, match="no finished step 'c' in branch 'main'"):
        await client.fork(handle.id, at="c")


async def test_an_endless_run_begins_anew_under_its_id(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """Its memory stays small, unread signals stay, and its random values are new."""

    @app.workflow
    async def count(run: holdfast.Run, total: int, keys: list[str]) -> list[Any]:
        total += await run.wait_signal("add")
        keys.append(str(run.uuid()))
        if total < 3:
            run.continue_as_new(total=total, keys=keys)
        return [total, len(set(keys)), run.attempt > 1]

    handle = await client.enqueue(count.job(total=0, keys=[]))
    for _ in range(4):
        await client.signal(handle.id, "add", 1)
    await work(app)
    assert await client.wait(handle.id, timeout=20) == [3, 3, True]
    assert len(await client.history(handle.id)) == 1
    assert await db.value("select count(*) from holdfast.signals where consumed_at is null") == 1


async def test_a_key_counts_once_although_the_run_began_anew(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, eventually: Any
) -> None:
    """What sends a signal twice need not know how often its run has begun anew between."""

    @app.workflow
    async def count(run: holdfast.Run, seen: list[Any]) -> list[Any]:
        seen.append(await run.wait_signal("add"))
        if len(seen) < 2:
            run.continue_as_new(seen)
        return seen

    await work(app)
    handle = await client.enqueue(count.job([]))
    await client.signal(handle.id, "add", 1, key="mail 7")

    async def began_anew() -> bool:
        record = await client.job(handle.id)
        return bool(record.args == {"seen": [1]})

    await eventually(began_anew)
    await rests(handle.id)
    await client.signal(handle.id, "add", 1, key="mail 7")
    await client.signal(handle.id, "add", 2, key="mail 8")
    assert await client.wait(handle.id, timeout=20) == [1, 2]


async def test_what_a_run_enqueues_is_enqueued_once(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, rests: Any
) -> None:
    """With the next step, with a wait, and with the end of the run, however often it is replayed."""

    @app.job(queue="elsewhere")
    async def mail(what: str) -> None: ...

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        run.enqueue(mail.job("with a step"))
        await run.step(echo, 1)
        run.enqueue(mail.job("with a wait"), priority=1)
        await run.wait_signal("go")
        run.enqueue(mail.job("with the end"))
        return "done"

    await work(app, queues=("default",))
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == "done"
    sent = "select args ->> 'what' from holdfast.jobs where kind = 'mail' order by id"
    assert await db.fetch(sent) == [("with a step",), ("with a wait",), ("with the end",)]


async def test_a_drained_worker_gives_its_run_back_unspent(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """The step that was cut off runs again elsewhere; no failure is counted."""
    begun = asyncio.Event()

    async def step() -> str:
        calls.append("step")
        if len(calls) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "done"

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        return await run.step(step)

    first = await work(app)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await first.stop(0.0)
    await work(app)
    assert await client.wait(handle.id, timeout=20) == "done"
    assert calls == ["step", "step"]
    assert (await client.job(handle.id)).failures == 0
