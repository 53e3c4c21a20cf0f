"""Cancels: they stop a run wherever it is, and what it did is made up for once and in full."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import holdfast
from holdfast.model.audit import Mandate
from holdfast.model.job import NewJob
from holdfast.store import children, interventions
from holdfast.store.children import Place
from holdfast.testing import Probe, ThrowawayDatabase
from tests.store.scene import KIND, Scene, fence

LIVE = "select count(*) from holdfast.live_jobs"

WAITING_FOR_LOCKS = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"""
# The end of a run waits in its commit, whatever the client says then.
SLOW_COMMIT = (
    """
    create function holdfast.commit_slowly() returns trigger language plpgsql as $$
    begin
        begin
            perform pg_advisory_xact_lock_shared(77);
        exception when query_canceled then
            perform pg_advisory_xact_lock_shared(77);
        end;
        return null;
    end
    $$""",
    """
    create constraint trigger slow after delete on holdfast.live_jobs deferrable initially deferred
    for each row execute function holdfast.commit_slowly()""",
)


async def echo(what: Any) -> Any:
    """A step."""
    return what


async def test_compensation_may_take_longer_than_a_renewal(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any, probe: Probe
) -> None:
    """The worker hears of the cancel again with every renewal; the run that knows of it is left alone."""
    begun, renewed = asyncio.Event(), asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "undo b":
            begun.set()
            await renewed.wait()
            calls.append("b is undone")

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
    probe.forget()
    await probe.wait_for("lease.renewed", times=3)
    renewed.set()
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["both", "undo b", "b is undone", "undo a"]


async def test_a_cancel_that_comes_while_a_run_remembers_is_made_up_for(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    rests: Any,
    db: ThrowawayDatabase,
    probe: Probe,
) -> None:
    """The run is told at its first await, before its code has begun again."""

    async def do(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo")
        await run.step(do, "charge")
        await run.wait_signal("go")
        await run.step(asyncio.Event().wait, name="for ever")

    await work(app, ttl=1.0)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    async with db.database.transaction() as connection:
        # Whoever remembers waits for this lock, and is told of the cancel meanwhile.
        await connection.execute(f'lock table "{db.schema}".steps in access exclusive mode')
        await client.signal(handle.id, "go")
        await _until_waiting_for_a_lock(db)
        await _request_cancel(db, handle.id)
        await probe.wait_for("cancel.delivered")
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "undo"]


async def test_compensation_waits_for_a_thread_that_works_on(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], probe: Probe
) -> None:
    """A thread cannot be stopped: what it does must not come after what makes up for it."""
    begun, go_on = threading.Event(), threading.Event()

    def charge() -> None:
        begun.set()
        go_on.wait(20)
        calls.append("charged")

    async def refund() -> None:
        calls.append("refunded")

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(refund)
        await run.step(charge)

    await work(app)
    handle = await client.enqueue(order.job())
    await asyncio.to_thread(begun.wait, 20)
    await client.cancel(handle.id)
    await probe.wait_for("cancel.delivered")
    # Time enough for a compensation that does not wait.
    asyncio.get_running_loop().call_later(0.3, go_on.set)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charged", "refunded"]


async def test_a_step_that_finishes_in_spite_of_a_cancel_is_recorded_and_the_last_one(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """The record says what happened; nothing new is begun behind it."""
    begun = asyncio.Event()

    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("finished all the same")
        return "done"

    async def note(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        await run.step(stubborn)
        run.on_failure(note, "undo")
        await run.step(note, "never")

    await work(app)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["finished all the same", "undo"]
    assert [(one.name, one.state) for one in await client.history(handle.id)] == [
        ("stubborn", "completed"),
        ("note", "completed"),
    ]


async def test_a_second_cancel_does_not_make_up_twice(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], rests: Any
) -> None:
    """Neither while a compensation runs, nor while it waits for its next try."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)
        if what == "undo":
            begun.set()
            await go_on.wait()

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo")
        await run.step(do, "charge")
        await run.wait_signal("never")

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.cancel(handle.id)
    await begun.wait()
    await client.cancel(handle.id)
    go_on.set()
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "undo"]


async def test_a_cancel_does_not_stop_a_failed_run_that_makes_up_for_things(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], probe: Probe
) -> None:
    """What has begun to be undone is undone, and so is the rest; the run has failed."""
    begun, renewed = asyncio.Event(), asyncio.Event()

    async def do(what: str) -> None:
        calls.append(what)

    async def refund() -> None:
        begun.set()
        await renewed.wait()
        calls.append("refunded")

    async def fail() -> None:
        msg = "broken"
        raise ValueError(msg)

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(do, "undo")
        run.on_failure(refund)
        await run.step(do, "charge")
        await run.step(fail)

    await work(app, ttl=1.0)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await client.cancel(handle.id)
    probe.forget()
    await probe.wait_for("lease.renewed", times=3)
    renewed.set()
    with pytest.raises(holdfast.JobFailed, match="broken"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "refunded", "undo"]


async def test_a_cancel_that_comes_while_the_end_of_a_run_is_written_is_made_up_for(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    db: ThrowawayDatabase,
    probe: Probe,
    eventually: Any,
) -> None:
    """The result is not recorded, so neither is what led to it left as it is."""
    go_on = asyncio.Event()

    @app.job(queue="elsewhere")
    async def mail() -> None: ...

    async def do(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        run.on_failure(do, "undo")
        await run.step(do, "charge")
        await go_on.wait()
        run.enqueue(mail.job())
        return "done"

    await work(app, queues=("default",))
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select true from holdfast.steps where name = 'do'"))
    async with db.database.transaction() as connection:
        await connection.execute(f'lock table "{db.schema}".steps in exclusive mode')
        go_on.set()
        await _until_waiting_for_a_lock(db)
        await client.cancel(handle.id)
        await probe.wait_for("cancel.delivered")
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "undo"]


async def test_a_cancel_that_meets_the_commit_of_the_end_undoes_nothing(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    db: ThrowawayDatabase,
    probe: Probe,
    eventually: Any,
) -> None:
    """A commit that nobody can stop any more, on a slow disk say, completes the run."""
    go_on = asyncio.Event()

    @app.job(queue="elsewhere")
    async def mail() -> None: ...

    async def do(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        run.on_failure(do, "undo")
        await run.step(do, "charge")
        await go_on.wait()
        run.enqueue(mail.job())
        return "done"

    async def has_gone_on() -> bool:
        return "undo" in calls or await db.value(WAITING_FOR_LOCKS) == 2

    for text in SLOW_COMMIT:
        await db.fetch(text)
    await work(app, queues=("default",))
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select true from holdfast.steps where name = 'do'"))
    async with db.database.transaction() as connection:
        await connection.execute("select pg_advisory_xact_lock(77)")
        # Asked for before, and told of in the commit.
        await db.fetch("update holdfast.live_jobs set cancel_requested_at = holdfast.now()")
        go_on.set()
        await eventually(lambda: db.value(WAITING_FOR_LOCKS))
        await _tell_of_cancel(db, handle.id)
        await probe.wait_for("cancel.delivered")
        await eventually(has_gone_on)
    assert await client.wait(handle.id, timeout=20) == "done"
    assert calls == ["charge"]


@pytest.mark.parametrize("how", ["alone", "with a job", "in a branch"])
async def test_a_step_whose_record_is_under_way_at_a_cancel_is_made_up_for(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    db: ThrowawayDatabase,
    probe: Probe,
    how: str,
) -> None:
    """What is read of the run is read behind that, or the step would be recorded, and never undone."""

    @app.job(queue="elsewhere")
    async def mail() -> None: ...

    async def do(what: str) -> str:
        calls.append(what)
        return what

    async def charge(run: holdfast.Run) -> None:
        if how == "with a job":
            run.enqueue(mail.job())
        charged = await run.step(do, "charge")
        run.on_failure(do, f"undo {charged}")

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            if how == "in a branch":
                branches.start("first", charge(run))
        if how != "in a branch":
            await charge(run)
        await run.wait_signal("never")

    await work(app, queues=("default",))
    async with db.database.transaction() as connection:
        await connection.execute(f'lock table "{db.schema}".steps in exclusive mode')
        handle = await client.enqueue(order.job())
        await _until_waiting_for_a_lock(db)
        await client.cancel(handle.id)
        await probe.wait_for("cancel.delivered")
        # Time enough for a run that reads its record at once.
        end = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.3, end.set_result, None)
        await end
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "undo charge"]


@pytest.mark.parametrize("ended", ["released", "lost"])
async def test_a_cancelled_run_without_a_record_goes_on_with_its_first_undo_elsewhere(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lose: Any, ended: str
) -> None:
    """Its worker stops, or is lost, while that is under way: the run is not over with it."""
    begun, undoing = asyncio.Event(), asyncio.Event()

    async def undo() -> None:
        calls.append("begun")
        undoing.set()
        if len(calls) == 1:
            await asyncio.Event().wait()
        calls.append("undone")

    async def charge() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        run.on_failure(undo)
        await run.step(charge)

    process = await work(app)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await client.cancel(handle.id)
    await undoing.wait()
    if ended == "lost":
        await lose()
    else:
        await process.stop(0.0)
    await work(app)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["begun", "begun", "undone"]


async def test_a_cancelled_run_whose_code_does_not_fit_is_kept_and_does_not_spin(
    client: holdfast.Client, work: Any, rests: Any
) -> None:
    """What there is to make up for cannot be told before the code is mended; meanwhile it costs nothing."""

    def version(name: str) -> holdfast.App:
        app = holdfast.App()

        @app.workflow
        async def plan(run: holdfast.Run) -> None:
            await run.step(echo, 1, name=name)
            await run.wait_signal("never")

        return app

    first = await work(version("one"))
    handle = await client.enqueue(version("one").request("plan", {}))
    await rests(handle.id)
    await first.stop(0.0)
    second = await work(version("two"))
    await client.cancel(handle.id)
    assert "NonDeterministicRun" in await rests(handle.id)
    assert (await client.job(handle.id)).attempt == 2
    await second.stop(0.0)
    await work(version("one"))
    await client.resume(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)


async def test_a_cancel_overrules_a_pause(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """A run that was to be paused at its next step makes up for things at once."""
    begun = asyncio.Event()

    async def note(what: str) -> None:
        calls.append(what)

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        for what in ("a", "b"):
            run.on_failure(note, f"undo {what}", name=what)
        await run.step(hang)

    await work(app)
    handle = await client.enqueue(order.job())
    await begun.wait()
    await client.pause(handle.id)
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    assert calls == ["undo b", "undo a"]


@pytest.mark.parametrize("ending", ["raises", "result"])
async def test_whatever_fails_a_run_is_made_up_for(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    calls: list[str],
    ending: str,
    db: ThrowawayDatabase,
) -> None:
    """An error, and a result that cannot be kept; what was enqueued on the way is enqueued, once."""

    @app.job(queue="elsewhere")
    async def alarm() -> None: ...

    async def note(what: str) -> None:
        calls.append(what)

    @app.workflow
    async def order(run: holdfast.Run) -> Any:
        run.on_failure(note, "undo")
        await run.step(note, "charge")
        run.enqueue(alarm.job())
        if ending == "raises":
            msg = "broken"
            raise ValueError(msg)
        return object()

    await work(app, queues=("default",))
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="broken" if ending == "raises" else "type object"):
        await client.wait(handle.id, timeout=20)
    assert calls == ["charge", "undo"]
    assert await db.value("select count(*) from holdfast.jobs where kind = 'alarm'") == 1
    assert (await client.job(handle.id)).attempt == 1


async def test_a_run_whose_cancel_was_requested_starts_no_children(scene: Scene) -> None:
    """The cancel has passed on to those that were there: nobody would cancel another one."""
    parent = await scene.one()
    await scene.run(interventions.cancel_jobs([parent.id], Mandate("ada", None)))
    place = Place("main", 0, KIND, "child", "{}")
    assert await scene.run(children.start_children(fence(parent), place, [NewJob(kind=KIND, args="{}")])) == 0
    assert await scene.db.value(LIVE) == 1


async def test_a_cancel_reaches_a_thousand_children(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """In one statement, grandchildren included; nobody is woken for nothing."""

    @app.job(queue="elsewhere")
    async def leaf(n: int) -> None: ...

    @app.workflow
    async def bough(run: holdfast.Run) -> None:
        await run.children([leaf.job(n) for n in range(10)])

    @app.workflow
    async def tree(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            branches.start("leaves", run.children([leaf.job(n) for n in range(1000)]))
            branches.start("boughs", run.children([bough.job() for _ in range(10)]))

    await work(app, queues=("default",), slots=4)
    handle = await client.enqueue(tree.job())
    await rests(handle.id)
    for (child,) in await db.fetch("select job_id from holdfast.live_jobs where kind = 'bough'"):
        await rests(child)
    async with asyncio.timeout(10):
        await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    for (child,) in await db.fetch("select id from holdfast.jobs where kind = 'bough'"):
        with pytest.raises(holdfast.JobCancelled):
            await client.wait(child, timeout=20)
    assert await db.value(LIVE) == 0
    ended = "select outcome, count(*) from holdfast.finished_jobs where kind = 'leaf' group by 1"
    assert await db.fetch(ended) == [("cancelled", 1100)]


async def _until_waiting_for_a_lock(db: ThrowawayDatabase) -> None:
    waits = "select 1 from pg_locks where not granted and relation = to_regclass($1)"
    async with asyncio.timeout(20):
        while not await db.value(waits, f'"{db.schema}".steps'):  # noqa: ASYNC110 - a lock wait has no event
            await asyncio.sleep(0.01)


async def _request_cancel(db: ThrowawayDatabase, run_id: int) -> None:
    await db.fetch(
        "update holdfast.live_jobs set cancel_requested_at = holdfast.now() where job_id = $1", run_id
    )
    await _tell_of_cancel(db, run_id)


async def _tell_of_cancel(db: ThrowawayDatabase, run_id: int) -> None:
    await db.fetch(
        "select pg_notify('holdfast', 'cancel:' || worker_id) from holdfast.live_jobs where job_id = $1",
        run_id,
    )


async def test_ten_thousand_children_end_in_one_statement_without_quadratic_cost(scene: Scene) -> None:
    """Their parent is looked at once for all of them: once for each took 24 s on an idle machine."""
    parent = await scene.one()
    place = Place("main", 0, KIND, "children", '{"policy": "cancel"}')
    asked = [NewJob(kind=KIND, args="{}", queue="elsewhere")] * 10_000
    await scene.run(children.start_children(fence(parent), place, asked))
    async with asyncio.timeout(12):
        await scene.run(interventions.cancel_jobs([parent.id], Mandate("ada", None)))
    assert (
        await scene.db.value("select count(*) from holdfast.finished_jobs where outcome = 'cancelled'")
        == 10_000
    )
