"""Waiting: on signals and times, without a slot, a lease or a failure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.store.sqlfile import rendered
from holdfast.testing import Probe, ThrowawayDatabase

HELD = "select count(*) from holdfast.live_jobs where worker_id is not null"
SECOND = timedelta(seconds=1)
SEND = "select holdfast.send_signal($1::bigint, 'go', $2::text::json)"
ENDED = "select finished_at from holdfast.finished_jobs where job_id = $1"


async def test_a_waiting_run_holds_nothing(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """One slot serves any number of waiting runs, and each goes on with its own signal."""

    @app.workflow
    async def ask(run: holdfast.Run, n: int) -> list[Any]:
        return [n, await run.wait_signal("answer")]

    await work(app, slots=1)
    handles = await client.enqueue_many([ask.job(n=n) for n in range(5)])
    for handle in handles:
        assert await rests(handle.id) == "signal 'answer'"
    assert await db.value(HELD) == 0
    for handle in reversed(handles):
        await client.signal(handle.id, "answer", f"for {handle.id}")
    for n, handle in enumerate(handles):
        assert await client.wait(handle.id, timeout=20) == [n, f"for {handle.id}"]
    assert await db.value("select count(*) from holdfast.suspensions") == 0


async def test_signals_are_read_in_order_and_once(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any
) -> None:
    """Those that came before the wait first; each name has a line of its own; a key counts once."""

    @app.workflow
    async def collect(run: holdfast.Run) -> list[Any]:
        seen = [await run.wait_signal("a") for _ in range(3)]
        return [*seen, await run.wait_signal("b")]

    handle = await client.enqueue(collect.job())
    await client.signal(handle.id, "b", "b1")
    first = await client.signal(handle.id, "a", 1, key="k")
    assert await client.signal(handle.id, "a", "twice", key="k") == first
    await client.signal(handle.id, "a", {"n": 2})
    await work(app)
    assert await rests(handle.id) == "signal 'a'"
    await client.signal(handle.id, "a", [3])
    assert await client.wait(handle.id, timeout=20) == [1, {"n": 2}, [3], "b1"]


async def test_a_signal_from_plain_sql_wakes_its_run_at_the_commit(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """Nothing is to be seen of it before, and a rolled-back one was never sent."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    send = rendered("select holdfast.send_signal($1::bigint, 'go', $2::json)", db.schema)
    psql = await asyncpg.connect(db.dsn)
    try:
        undone = psql.transaction()
        await undone.start()
        await psql.execute(send, handle.id, '"never sent"')
        await undone.rollback()
        async with psql.transaction():
            await psql.execute(send, handle.id, '{"by": "psql"}')
            assert await rests(handle.id) == "signal 'go'"
    finally:
        await psql.close()
    assert await client.wait(handle.id, timeout=20) == {"by": "psql"}


@pytest.mark.parametrize(
    "payload", ['"\\ud800"', '"\\u0000"', '"' + "x" * 1024 * 1024 + '"'], ids=["half", "NUL", "long"]
)
async def test_a_signal_from_plain_sql_that_nobody_could_read_is_refused(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, payload: str
) -> None:
    """Taken, it would be met again by every attempt of its run."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        return await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    with pytest.raises(asyncpg.PostgresError):
        await db.fetch(SEND, handle.id, payload)
    await client.signal(handle.id, "go", "read")
    assert await client.wait(handle.id, timeout=20) == "read"


@pytest.mark.parametrize("payload", ["1e400", "[" * 3000 + "]" * 3000], ids=["number", "depth"])
async def test_a_signal_that_python_has_no_value_for_is_an_error_of_its_wait(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, payload: str
) -> None:
    """The run may catch it, and its history can be shown."""

    @app.workflow
    async def ask(run: holdfast.Run) -> Any:
        try:
            return await run.wait_signal("go")
        except holdfast.errors.InputInvalid as invalid:
            return str(invalid)

    await work(app)
    handle = await client.enqueue(ask.job())
    await rests(handle.id)
    await db.fetch(SEND, handle.id, payload)
    answer = await client.wait(handle.id, timeout=20)
    assert answer.startswith("the payload of signal 'go' cannot be read")
    assert [one.name for one in await client.history(handle.id)] == ["go"]


async def test_a_signal_to_nobody_is_refused(client: holdfast.Client) -> None:
    """Whoever signals a run that has ended is told so."""
    with pytest.raises(holdfast.RunEnded, match="run 4711 has ended or does not exist"):
        await client.signal(4711, "go")


async def test_a_wait_for_a_signal_ends_at_its_time(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """The time counts from the first wait: who wakes does not wait anew.  It raises what can be caught."""

    @app.workflow
    async def ask(run: holdfast.Run) -> str:
        try:
            await run.wait_signal("go", timeout=timedelta(seconds=4))
        except TimeoutError as error:
            return f"{type(error).__name__}: {error}"
        return "not reached"

    await work(app)
    late: list[timedelta] = []
    # A full machine may hold up one or two of them.
    while len(late) < 3 and min(late, default=SECOND) >= SECOND:
        handle = await client.enqueue(ask.job())
        await rests(handle.id)
        due = await db.value("select wake_at from holdfast.steps where run_id = $1", handle.id)
        assert await client.wait(handle.id, timeout=20) == "SignalTimeout: signal 'go' did not come in time"
        assert (await client.job(handle.id)).attempt == 2
        late.append(await db.value(ENDED, handle.id) - due)
    assert timedelta(0) <= min(late) < SECOND


async def test_a_sleep_ends_at_its_time_although_the_run_woke_between(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """A sleep is a moment, not a length: a signal for another branch does not prolong it."""

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        async with run.branches() as branches:
            branches.start("nap", run.sleep(3600))
            told = branches.start("ask", run.wait_signal("go"))
        return str(told.result())

    await work(app)
    handle = await client.enqueue(nap.job())
    await rests(handle.id)
    # As if an hour had passed.
    await db.fetch("update holdfast.steps set wake_at = wake_at - interval '1 hour' where kind = 'sleep'")
    await client.signal(handle.id, "go", "told")
    assert await client.wait(handle.id, timeout=20) == "told"


async def test_a_sleep_ends_at_its_time_and_no_later(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """Exact to well under a second, although a signal woke the run between."""

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        async with run.branches() as branches:
            branches.start("nap", run.sleep(2))
            told = branches.start("ask", run.wait_signal("go"))
        return str(told.result())

    await work(app)
    late: list[timedelta] = []
    # A full machine may hold up one or two of them.
    while len(late) < 3 and min(late, default=SECOND) >= SECOND:
        handle = await client.enqueue(nap.job())
        await rests(handle.id)
        due = await db.value(
            "select wake_at from holdfast.steps where run_id = $1 and kind = 'sleep'", handle.id
        )
        await client.signal(handle.id, "go", "told")
        assert await client.wait(handle.id, timeout=20) == "told"
        late.append(await db.value(ENDED, handle.id) - due)
    assert timedelta(0) <= min(late) < SECOND


async def test_the_end_of_a_sleep_is_recorded_although_a_sibling_stays_awake(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """The sibling is in a wait too short to be suspended for, then in a long step: both outlive a restart."""
    begun, finish = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        await finish.wait()

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        async def poll() -> None:
            await run.sleep(0.5)
            await run.step(long)

        async with run.branches() as branches:
            branches.start("poll", poll())
            branches.start("nap", run.sleep(3600))
        return "not reached"

    await work(app)
    await client.enqueue(nap.job())
    async with asyncio.timeout(20):
        await begun.wait()
    try:
        due = await db.value("select wake_at - holdfast.now() from holdfast.steps where branch = 'main/nap'")
        assert timedelta(minutes=59) < due < timedelta(hours=1)
    finally:
        finish.set()


async def test_a_sleep_until_a_moment_that_is_past_is_over(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """It is no error, and needs no suspension."""

    @app.workflow
    async def nap(run: holdfast.Run) -> str:
        await run.sleep_until(datetime(2001, 1, 1, tzinfo=UTC))
        await run.sleep(0.05)
        return "awake"

    await work(app)
    handle = await client.enqueue(nap.job())
    assert await client.wait(handle.id, timeout=20) == "awake"
    assert (await client.job(handle.id)).attempt == 1


async def test_a_signal_is_seen_while_another_branch_works(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """A run that stays in memory looks for its signals there."""
    answered = asyncio.Event()

    async def long() -> str:
        await answered.wait()
        return "worked"

    async def listen(run: holdfast.Run) -> str:
        payload = await run.wait_signal("go")
        answered.set()
        return str(payload)

    @app.workflow
    async def both(run: holdfast.Run) -> list[str]:
        async with run.branches() as branches:
            one = branches.start("work", run.step(long))
            two = branches.start("listen", listen(run))
        return [one.result(), two.result()]

    await work(app)
    handle = await client.enqueue(both.job())
    await client.signal(handle.id, "go", "heard")
    assert await client.wait(handle.id, timeout=20) == ["worked", "heard"]
    assert (await client.job(handle.id)).attempt == 1


async def test_a_run_signals_another_run_once(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase
) -> None:
    """However often it is replayed; one that has ended is an error that can be caught."""

    @app.workflow
    async def ask(run: holdfast.Run) -> list[Any]:
        return [await run.wait_signal("go"), await run.wait_signal("go")]

    @app.workflow
    async def tell(run: holdfast.Run, other: int) -> str:
        for n in range(2):
            await run.signal(other, "go", {"n": n})
        await run.wait_signal("end")
        try:
            await run.signal(other, "go")
        except holdfast.RunEnded as error:
            return str(error)
        return "not reached"

    await work(app)
    asked = await client.enqueue(ask.job())
    told = await client.enqueue(tell.job(other=asked.id))
    assert await client.wait(asked.id, timeout=20) == [{"n": 0}, {"n": 1}]
    await rests(told.id)
    await client.signal(told.id, "end")
    assert (
        await client.wait(told.id, timeout=20)
        == f"run {asked.id} has ended or does not exist: it takes no signals"
    )
    assert await db.value("select count(*) from holdfast.signals where run_id = $1", asked.id) == 2
    lines = await client.activities(told.id)
    assert lines[0].parameters == {"args": [asked.id, {"n": 0}]}


async def test_what_no_signal_can_carry_is_refused_at_the_door(client: holdfast.Client) -> None:
    """A NUL, a number that JSON has not, too much of it, and names that are none; nothing is sent."""
    for payload, problem in (
        ("a\x00b", "NUL character"),
        (float("nan"), "number nan"),
        ("x" * (1024 * 1024), "1,048,578 bytes where 1,048,576 are allowed"),
        (object(), "type object cannot be turned into JSON"),
    ):
        with pytest.raises(holdfast.InputInvalid, match=problem):
            await client.signal(1, "go", payload)
    for name in ("", "a\x00b", "x" * 201):
        with pytest.raises(holdfast.OptionInvalid, match="name is"):
            await client.signal(1, name)
    with pytest.raises(holdfast.OptionInvalid, match="key is"):
        await client.signal(1, "go", key="\x00")


@pytest.mark.parametrize("wait", ["signal", "sleep", "child", "children", "retry", "branches"])
async def test_a_waiting_run_says_why(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, wait: str
) -> None:
    """In a sentence that names what has to come."""

    @app.job(queue="elsewhere")
    async def job() -> None: ...

    async def never() -> None:
        msg = "no luck"
        raise ValueError(msg)

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        match wait:
            case "signal":
                await run.wait_signal("approved", timeout=3600)
            case "sleep":
                await run.sleep(timedelta(hours=1))
            case "child":
                await run.child(job.job())
            case "children":
                await run.children([job.job(), job.job()])
            case "retry":
                await run.step(never, max_attempts=2, retry=holdfast.Constant(timedelta(hours=1)))
            case "branches":
                async with run.branches() as branches:
                    branches.start("a", run.wait_signal("approved"))
                    branches.start("b", run.sleep(3600))

    told = {
        "signal": "signal 'approved'",
        "sleep": "the end of a sleep of 3600 s",
        "child": "child 2",
        "children": "2 children from 2 on",
        "retry": "the next try of step 'never'",
        "branches": "signal 'approved'; the end of a sleep of 3600 s",
    }
    await work(app, queues=("default",))
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    operator = Operator(db.database, "ada").jobs
    assert told[wait] in str(await operator.why(handle.id))
    await client.pause(handle.id, reason="audit")
    assert "audit" in str(await operator.why(handle.id))
    await client.resume(handle.id)
    assert told[wait] in str(await operator.why(handle.id))


# What a database that is short of something answers to a run that falls asleep.
REFUSE = """
do $do$ begin
    create function holdfast.refuse() returns trigger language plpgsql as $$
    begin
        raise exception 'not now' using errcode = 'disk_full';
    end $$;
    create trigger refuse before insert on holdfast.suspensions
    for each row execute function holdfast.refuse();
end $do$
"""
SLEPT = """
    select extract(epoch from s.wake_at - a.started_at)::float,
           extract(epoch from p.wake_at - a.started_at)::float
    from holdfast.suspensions s
    join holdfast.attempts a on a.job_id = s.run_id
    join holdfast.steps p on p.run_id = s.run_id
"""


async def test_a_timer_is_not_moved_by_a_database_that_was_away_when_the_run_fell_asleep(
    client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """It ends at its moment, however late the sleep could be written."""

    @app.workflow
    async def nap(run: holdfast.Run) -> None:
        await run.sleep(60)

    await work(app)
    await db.fetch(REFUSE)
    handle = await client.enqueue(nap.job())
    await probe.wait_for("report.delayed", lambda fields: fields["retry_in"] >= 1.0)
    await db.fetch("drop function holdfast.refuse cascade")
    await rests(handle.id)
    assert await db.fetch(SLEPT) == [(pytest.approx(60, abs=0.7), pytest.approx(60, abs=0.7))]
