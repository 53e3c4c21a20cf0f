"""Children: jobs and runs of a run, in other queues, with results."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.model.audit import Mandate
from holdfast.store import children, interventions
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import Scene

LIVE = "select count(*) from holdfast.live_jobs"

WAITS = "select true from holdfast.suspensions where run_id = $1 and $2::text = any (signals)"
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and state = 'active'"


async def test_a_child_gives_its_result_to_its_parent(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """A job in another queue, and a run with a wait of its own; the parent waits without a slot."""

    @app.job(queue="other")
    async def ship(order_id: int) -> str:
        return f"shipped {order_id}"

    @app.workflow(queue="other")
    async def bill(run: holdfast.Run, order_id: int) -> str:
        await run.sleep(1.2)
        return f"billed {order_id}"

    @app.workflow
    async def order(run: holdfast.Run, order_id: int) -> list[str]:
        return [await run.child(ship.job(order_id)), await run.child(bill.job(order_id=order_id))]

    await work(app, slots=1)
    handle = await client.enqueue(order.job(order_id=7))
    assert await client.wait(handle.id, timeout=20) == ["shipped 7", "billed 7"]
    parents = await db.fetch("select distinct parent_id from holdfast.jobs where parent_id is not null")
    assert parents == [(handle.id,)]


async def test_a_failed_child_is_an_error_that_can_be_caught(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It names the child and its reason, also at a replay."""

    @app.job
    async def broken() -> None:
        msg = "no stock"
        raise holdfast.Poison(msg)

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        try:
            await run.child(broken.job())
        except holdfast.ChildFailed as error:
            caught = f"{error.outcome}: {error.reason}"
        await run.wait_signal("go")
        return caught

    await work(app)
    handle = await client.enqueue(order.job())
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == "failed: poison: Poison: no stock"


async def test_children_that_end_in_old_snapshots_wake_their_parent(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Each looks at what was there when its transaction began, when the other one lived."""
    inside: list[int] = []
    both, sleeps = asyncio.Event(), asyncio.Event()

    @app.job(retry=holdfast.Constant(timedelta(milliseconds=10)))
    async def weigh(job: holdfast.Job, n: int) -> int:
        await sleeps.wait()
        async with job.transaction() as connection:
            await connection.execute("set transaction isolation level repeatable read")
            await connection.fetchval("select 1")
            inside.append(n)
            if len(inside) == 2:
                both.set()
            await both.wait()
            job.result = n
        return n

    @app.workflow
    async def order(run: holdfast.Run) -> list[int]:
        return await run.children([weigh.job(n) for n in range(2)])

    await work(app, slots=5)
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select true from holdfast.live_jobs where state = 'waiting'"))
    sleeps.set()
    assert await client.wait(handle.id, timeout=20) == [0, 1]


async def test_a_run_sleeps_behind_a_pooler_whose_database_reads_repeatably(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """It is told to go on by what has come, and not by each look that may be too old to know."""

    @app.workflow
    async def order(run: holdfast.Run) -> int:
        await run.wait_signal("go")
        return run.attempt

    dsn = f"{db.dsn}{'&' if '?' in db.dsn else '?'}default_transaction_isolation=repeatable%20read"
    await work(app, poll=0.05, database={"pgbouncer": True, "dsn": dsn})
    handle = await client.enqueue(order.job())
    suspended = "select count(*) from holdfast.attempts where outcome = 'suspended'"
    other = await client.enqueue(order.job(), delay=1)
    await client.signal(other.id, "go")
    # By the time that the other one has come and gone, this one would have gone on many times.
    assert await client.wait(other.id, timeout=20) == 1
    assert await db.value(suspended) == 1
    await client.signal(handle.id, "go")
    assert await client.wait(handle.id, timeout=20) == 2


@pytest.mark.parametrize("count", [1, 2000])
async def test_many_children_are_gathered_in_order(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase, count: int
) -> None:
    """They are enqueued at once, and the parent wakes once, when the last has ended."""

    @app.job
    async def square(n: int) -> int:
        return n * n

    @app.workflow
    async def fan(run: holdfast.Run) -> int:
        return sum(await run.children([square.job(n) for n in range(count)]))

    await work(app, slots=20)
    await work(app, slots=20)
    handle = await client.enqueue(fan.job())
    assert await client.wait(handle.id, timeout=60) == sum(n * n for n in range(count))
    assert (await client.job(handle.id)).attempt == 2
    assert await db.value(LIVE) == 0


async def test_children_may_have_options_of_their_own(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """Those that a child can have; others, such as a unique key, are refused before anything is enqueued."""

    @app.job(queue="elsewhere")
    async def build(part: str) -> None: ...

    @app.workflow(max_attempts=1)
    async def plan(run: holdfast.Run, option: str) -> None:
        parts = [build.job(part).with_options(**{option: part}) for part in "ab"]  # type: ignore[arg-type]
        run.enqueue(parts[0])
        await run.children(parts, priority=2)

    await work(app, queues=("default",))
    refused = await client.enqueue(plan.job("unique_key"))
    with pytest.raises(holdfast.JobFailed, match=r"unique_key is 'a': there is no such option here"):
        await client.wait(refused.id, timeout=20)
    assert await db.value("select count(*) from holdfast.jobs where kind = 'build'") == 0
    keyed = await client.enqueue(plan.job("concurrency_key"))
    await work(app, queues=("elsewhere",))
    await client.wait(keyed.id, timeout=20)
    found = "select concurrency_key, priority::integer from holdfast.jobs where kind = 'build' order by id"
    assert await db.fetch(found) == [("a", 5), ("a", 2), ("b", 2)]


async def test_failures_among_many_children_stand_where_their_results_would(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """Or the first of them is raised, and says how many there are."""

    @app.job
    async def odd(n: int) -> int:
        if n % 2 == 0:
            raise holdfast.Poison(str(n))
        return n

    @app.workflow
    async def fan(run: holdfast.Run) -> list[Any]:
        ends = await run.children([odd.job(n) for n in range(4)], return_failures=True)
        shown = [end.reason if isinstance(end, holdfast.ChildFailed) else end for end in ends]
        try:
            await run.children([odd.job(n) for n in range(4)])
        except holdfast.ChildFailed as error:
            shown.append(error.others)
        return [*shown, await run.children([])]

    await work(app)
    handle = await client.enqueue(fan.job())
    assert await client.wait(handle.id, timeout=20) == ["poison: Poison: 0", 1, "poison: Poison: 2", 3, 1, []]


@pytest.mark.parametrize(("policy", "left"), [("cancel", []), ("abandon", ["wait"])])
async def test_a_cancel_reaches_children_by_their_policy(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    rests: Any,
    db: ThrowawayDatabase,
    policy: str,
    left: Any,
) -> None:
    """A waiting child is cancelled with its parent, or goes on without it."""

    @app.workflow
    async def wait(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    @app.workflow
    async def parent(run: holdfast.Run) -> Any:
        return await run.child(wait.job(), policy=policy)

    await work(app)
    handle = await client.enqueue(parent.job())
    await rests(handle.id)
    child = await db.value("select job_id from holdfast.live_jobs where parent_id = $1", handle.id)
    await rests(child)
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(handle.id, timeout=20)
    if policy == "cancel":
        with pytest.raises(holdfast.JobCancelled):
            await client.wait(child, timeout=20)
    assert [row[0] for row in await db.fetch("select kind from holdfast.live_jobs")] == left


async def test_a_child_that_is_retried_in_time_gives_its_new_result(
    client: holdfast.Client, work: Any, app: holdfast.App, eventually: Any, db: ThrowawayDatabase
) -> None:
    """Its parent still waits for a sibling, and hears how both ended at last."""
    gate, tries = asyncio.Event(), []

    @app.job
    async def pack(what: str) -> str:
        tries.append(what)
        if what == "glass" and tries.count("glass") == 1:
            msg = "it broke"
            raise holdfast.Poison(msg)
        if what == "stone":
            await gate.wait()
        return what

    @app.workflow
    async def order(run: holdfast.Run) -> list[str]:
        return await run.children([pack.job("glass"), pack.job("stone")])

    await work(app)
    handle = await client.enqueue(order.job())
    broken = await eventually(
        lambda: db.value("select job_id from holdfast.finished_jobs where outcome = 'failed'")
    )
    await client.retry(broken)
    gate.set()
    assert await client.wait(handle.id, timeout=20) == ["glass", "stone"]


async def test_a_retried_run_takes_up_those_of_its_children_that_failed(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """The others are not done again, nor is what a failed child that is a run had done before its failure."""

    async def note(what: str) -> str:
        calls.append(what)
        if calls.count(what) == 1 and what in ("break", "glass"):
            msg = f"{what} failed"
            raise RuntimeError(msg)
        return what

    @app.job(max_attempts=1)
    async def pack(what: str) -> str:
        return await note(what)

    @app.workflow
    async def parcel(run: holdfast.Run, what: str) -> list[Any]:
        return [await run.step(note, what), *await run.children([pack.job("break"), pack.job("keep")])]

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([pack.job("glass"), pack.job("stone"), parcel.job(what="box")])

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="and 1 more of its siblings"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["glass", "stone", ["box", "break", "keep"]]
    assert sorted(calls) == ["box", "break", "break", "glass", "glass", "keep", "stone"]


@pytest.fixture
async def broken(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> holdfast.JobHandle:
    """A run that has failed: of its children "glass" and "stone" the first breaks the first time."""

    @app.job(max_attempts=1)
    async def pack(what: str) -> str:
        calls.append(what)
        if calls.count("glass") == 1 and what == "glass":
            msg = "it broke"
            raise RuntimeError(msg)
        return what

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([pack.job("glass"), pack.job("stone")])

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed):
        await client.wait(handle.id, timeout=20)
    return handle


async def test_a_run_whose_children_are_history_fails_and_says_so(
    client: holdfast.Client, broken: holdfast.JobHandle, calls: list[str], db: ThrowawayDatabase
) -> None:
    """Their ends will never come: to wait for them would be to begin anew for ever."""
    await db.fetch("delete from holdfast.finished_jobs where outcome = 'completed'")
    await client.retry(broken.id)
    with pytest.raises(
        holdfast.JobFailed, match="ChildrenGone: 1 of 2 ends of children of '2 pack' are kept no"
    ):
        await client.wait(broken.id, timeout=20)
    assert calls.count("glass") == 2


async def test_a_retried_run_sees_what_became_of_a_child_that_was_retried_before_it(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], db: ThrowawayDatabase
) -> None:
    """The record of a failure that is none any more does not fail the run again."""

    @app.job(max_attempts=1)
    async def pack(what: str) -> str:
        calls.append(what)
        if calls.count("glass") == 1:
            msg = "it broke"
            raise RuntimeError(msg)
        return what

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([pack.job("glass"), pack.job("stone")])

    await work(app, slots=1)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed):
        await client.wait(handle.id, timeout=20)
    broken = await db.value(
        "select job_id from holdfast.finished_jobs where outcome = 'failed' and family_id is not null"
    )
    await client.retry(broken)
    await client.wait(broken, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["glass", "stone"]
    assert calls.count("glass") == 2


async def test_a_cancel_reaches_children_that_were_started_before_their_run_began_anew(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """The new memory does not mention them, but whoever cancels or pauses the run finds them."""

    @app.workflow
    async def watch(run: holdfast.Run) -> None:
        await run.wait_signal("never")

    @app.workflow
    async def order(run: holdfast.Run, round: int) -> None:
        if round == 3:
            await run.wait_signal("never")
        async with run.branches() as branches:
            branches.start("watch", run.child(watch.job(), policy="cancel" if round == 1 else "abandon"))
            await run.wait_signal(f"round {round}")
            run.continue_as_new(round + 1)

    await work(app)
    handle = await client.enqueue(order.job(1))
    for round in (1, 2):
        await eventually(lambda round=round: db.value(WAITS, handle.id, f"round {round}"))
        await client.signal(handle.id, f"round {round}")
    await eventually(lambda: db.value(WAITS, handle.id, "never"))
    living = "select job_id from holdfast.live_jobs where parent_id = $1 order by job_id"
    (followed,), (abandoned,) = await db.fetch(living, handle.id)
    await rests(followed)
    await client.cancel(handle.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(followed, timeout=20)
    assert (await client.job(abandoned)).state == "waiting"


async def test_a_child_that_has_made_up_for_its_steps_is_begun_anew_by_its_parents_retry(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """All it did is undone, so it does all of it again, and with other keys for what it asks of others."""
    keys: list[str] = []

    async def do(what: str) -> None:
        calls.append(what)
        if what == "ship" and calls.count("ship") == 1:
            msg = "no ship"
            raise RuntimeError(msg)

    @app.workflow
    async def parcel(run: holdfast.Run) -> str:
        keys.append(str(run.uuid()))
        run.on_failure(do, "refund")
        await run.step(do, "charge")
        await run.step(do, "ship")
        return "shipped"

    @app.job
    async def plain() -> str:
        return "plain"

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([parcel.job(), plain.job()])

    await work(app)
    handle = await client.enqueue(order.job())
    with pytest.raises(holdfast.JobFailed, match="no ship"):
        await client.wait(handle.id, timeout=20)
    await client.retry(handle.id)
    assert await client.wait(handle.id, timeout=20) == ["shipped", "plain"]
    assert calls == ["charge", "ship", "refund", "charge", "ship"]
    assert keys[0] != keys[-1]


async def test_children_whose_results_are_too_large_together_fail_their_step_in_words(
    client: holdfast.Client, work: Any, app: holdfast.App, monkeypatch: pytest.MonkeyPatch, rests: Any
) -> None:
    """It is an error that the code can catch, and not an attempt that dies of memory."""
    monkeypatch.setattr("holdfast.workflow.waits.MAX_ENDS_BYTES", 1000)

    @app.job
    async def talk() -> str:
        return "x" * 600

    @app.workflow
    async def order(run: holdfast.Run) -> str:
        try:
            await run.children([talk.job(), talk.job()])
        except holdfast.PayloadTooLarge as error:
            return f"{error} {await run.wait_signal('go')}"
        return "small"

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    await client.signal(handle.id, "go", 1)
    told = await client.wait(handle.id, timeout=20)
    assert "the results of '2 talk'" in told
    assert "1,000 are allowed" in told


@pytest.mark.parametrize(("policy", "outcome"), [("cancel", "cancelled"), ("abandon", "waiting")])
@pytest.mark.parametrize("end", ["fails", "is discarded", "says so"])
async def test_a_run_without_a_result_takes_along_the_children_that_follow_it(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    rests: Any,
    db: ThrowawayDatabase,
    scene: Scene,
    policy: str,
    outcome: str,
    end: str,
) -> None:
    """Whichever way it ends: nobody waits for them any more."""

    @app.workflow
    async def ship(run: holdfast.Run) -> None:
        await run.wait_signal("never")

    @app.workflow
    async def order(run: holdfast.Run) -> Any:
        try:
            async with run.branches() as branches:
                branches.start("ship", run.child(ship.job(), policy=policy))
                await run.wait_signal("go")
                msg = "no stock"
                raise RuntimeError(msg)
        except* RuntimeError:
            if end == "fails":
                raise
        return holdfast.Cancel("no stock")

    await work(app)
    handle = await client.enqueue(order.job())
    await rests(handle.id)
    child = await db.value("select job_id from holdfast.live_jobs where parent_id = $1", handle.id)
    await rests(child)
    if end == "is discarded":
        await scene.run(interventions.discard_jobs([handle.id], Mandate("ada", None)))
    else:
        await client.signal(handle.id, "go")
    with pytest.raises((holdfast.JobFailed, holdfast.JobCancelled)):
        await client.wait(handle.id, timeout=20)
    if outcome == "cancelled":
        with pytest.raises(holdfast.JobCancelled):
            await client.wait(child, timeout=20)
    assert (await client.job(child)).state == outcome


@pytest.mark.parametrize("act", [interventions.cancel_jobs, interventions.discard_jobs])
async def test_a_retried_run_takes_up_the_children_that_were_cancelled_with_it(
    client: holdfast.Client, work: Any, app: holdfast.App, scene: Scene, eventually: Any, act: Any
) -> None:
    """It waited for them: each goes on, and gives its result at last."""

    @app.workflow
    async def ship(run: holdfast.Run, what: str) -> str:
        return f"{what} {await run.wait_signal('go')}"

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        async with run.branches() as branches:
            one = branches.start("one", run.child(ship.job("one")))
            many = branches.start("many", run.children([ship.job("a"), ship.job("b")]))
        return [one.result(), *many.result()]

    await work(app)
    handle = await client.enqueue(order.job())
    await eventually(lambda: scene.db.value("select count(*) = 4 from holdfast.suspensions"))
    members = [
        row[0] for row in await scene.db.fetch("select id from holdfast.jobs where parent_id is not null")
    ]
    await scene.run(act([handle.id], Mandate("ada", None)))
    for ended in (handle.id, *members):
        with pytest.raises((holdfast.JobCancelled, holdfast.JobFailed)):
            await client.wait(ended, timeout=20)
    await client.retry(handle.id)
    for child in members:
        await client.signal(child, "go", "went")
    assert await client.wait(handle.id, timeout=20) == ["one went", "a went", "b went"]


async def test_a_run_that_wakes_for_one_of_many_children_asks_for_that_one(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others were seen alive when its memory was loaded: an end costs one question, not thirty."""
    asked: list[int] = []
    take = children.take_children

    def counted(*args: Any, family: int, **options: Any) -> Any:
        asked.append(family)
        return take(*args, family=family, **options)

    monkeypatch.setattr(children, "take_children", counted)

    @app.workflow
    async def ship(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    @app.workflow
    async def order(run: holdfast.Run) -> None:
        async with run.branches() as branches:
            for n in range(30):
                branches.start(f"{n}", run.child(ship.job()))

    await work(app)
    handle = await client.enqueue(order.job())
    await eventually(lambda: db.value("select count(*) = 31 from holdfast.suspensions"))
    asked.clear()
    child = await db.value("select max(job_id) from holdfast.live_jobs where parent_id = $1", handle.id)
    await client.signal(child, "go")
    await client.wait(child, timeout=20)
    left = "select cardinality(families) = 29 from holdfast.suspensions where run_id = $1"
    await eventually(lambda: db.value(left, handle.id))
    assert set(asked) == {child}


async def test_a_childs_end_that_is_given_up_to_a_pause_costs_it_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, scene: Scene, eventually: Any
) -> None:
    """Who pauses a family locks the parent first, a child that ends itself: one of the two begins anew."""
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job(queue="elsewhere")
    async def mail() -> None: ...

    async def hold() -> None:
        begun.set()
        await go.wait()

    @app.workflow
    async def ship(run: holdfast.Run) -> str:
        await run.step(hold)
        run.enqueue(mail.job())
        return "shipped"

    @app.workflow
    async def order(run: holdfast.Run) -> Any:
        return await run.child(ship.job())

    await work(app, queues=("default",))
    handle = await client.enqueue(order.job())
    await begun.wait()
    child = await scene.db.value("select job_id from holdfast.live_jobs where parent_id = $1", handle.id)
    lock = "select job_id from holdfast.live_jobs where job_id = $1 for update"
    session = await scene.session()
    async with session.transaction():
        # Who waits so long looks for a deadlock and gives up: let that be the child.
        await session.execute("set local deadlock_timeout = '1min'")
        await scene.execute(session, lock, handle.id)
        go.set()
        await eventually(lambda: scene.db.value(WAITING))
        await scene.execute(session, lock, child)
    assert await client.wait(handle.id, timeout=20) == "shipped"
    told = await client.job(child)
    assert (told.attempt, told.failures) == (1, 0)
    assert await scene.db.value("select count(*) from holdfast.jobs where kind = 'mail'") == 1


async def test_a_retry_of_a_fork_begins_children_of_its_own(
    client: holdfast.Client, broken: holdfast.JobHandle, calls: list[str], db: ThrowawayDatabase
) -> None:
    """Those whose failure it remembers belong to the run that it was forked from, and would never wake it."""
    forked = await client.fork(broken.id, at="2 pack")
    with pytest.raises(holdfast.JobFailed):
        await client.wait(forked.id, timeout=20)
    await client.retry(forked.id)
    assert await client.wait(forked.id, timeout=20) == ["glass", "stone"]
    assert sorted(calls) == ["glass", "glass", "stone", "stone"]
    assert await db.value("select count(*) from holdfast.jobs where parent_id = $1", forked.id) == 2


async def test_a_retry_that_another_jobs_key_forbids_takes_up_no_children(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], db: ThrowawayDatabase
) -> None:
    """The run stays as it is, and so do those that only it waits for."""

    @app.job(max_attempts=1)
    async def pack(what: str) -> str:
        calls.append(what)
        msg = "it broke"
        raise RuntimeError(msg)

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([pack.job("glass")])

    await work(app)
    handle = await client.enqueue(order.job(), unique_key="order")
    with pytest.raises(holdfast.JobFailed):
        await client.wait(handle.id, timeout=20)
    holder = await client.enqueue(order.job(), unique_key="order", delay=3600)
    with pytest.raises(holdfast.DuplicateJob):
        await client.retry(handle.id)
    assert await db.fetch("select job_id from holdfast.live_jobs") == [(holder.id,)]
    assert calls == ["glass"]
