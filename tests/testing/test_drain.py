"""Drain runs real jobs, one at a time, in strict order, until nothing is left."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import DrainEndless
from holdfast.testing import Clock, ThrowawayDatabase, drain
from tests.worker import handlers

AT_ONCE = holdfast.Constant(timedelta(0))


async def test_results_are_reported_and_stored(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """The report and the database say the same of a completed job."""
    app = holdfast.App()

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    handle = await client.enqueue(add.job(2, 3))
    report = await drain(app, db)
    assert report.counts == {"completed": 1}
    assert [(one.job_id, one.attempt, one.result) for one in report.of(add)] == [(handle.id, 1, 5)]
    assert await client.wait(handle.id, timeout=5) == 5


async def test_the_order_is_by_priority_then_age_over_all_queues(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """The best job of any queue runs next, also one that a handler has just enqueued."""
    app = holdfast.App()

    @app.job
    async def step(name: str) -> str:
        if name == "second":
            await client.enqueue(step.job(name="urgent"), priority=0, queue="new")
        return name

    for name, priority, queue in (
        ("third", 5, "a"),
        ("first", 1, "b"),
        ("fourth", 5, "b"),
        ("second", 2, "a"),
    ):
        await client.enqueue(step.job(name=name), priority=priority, queue=queue)
    report = await drain(app, db)
    assert [one.result for one in report.attempts] == ["first", "second", "urgent", "third", "fourth"]


async def test_only_the_named_queues_are_drained(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A queue that was not named keeps its jobs."""
    app = holdfast.App()

    @app.job
    async def ping() -> None: ...

    await client.enqueue(ping.job(), queue="mine")
    await client.enqueue(ping.job(), queue="theirs")
    report = await drain(app, db, queues=["mine"])
    assert [one.queue for one in report.attempts] == ["mine"]
    left = await db.fetch("select queue, state, attempt from holdfast.live_jobs")
    assert left == [("theirs", "available", 0)]


async def test_every_outcome_is_reported(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A retry, a snooze, a cancel, a poison and a plain failure keep their names and reasons."""
    app = holdfast.App()

    @app.job(retry=AT_ONCE, max_attempts=2)
    async def broken() -> None:
        msg = "no such luck"
        raise ValueError(msg)

    @app.job
    async def poisoned() -> None:
        msg = "never"
        raise holdfast.Poison(msg)

    @app.job
    async def stopped() -> holdfast.Cancel:
        return holdfast.Cancel("no longer needed")

    @app.job
    async def tired() -> holdfast.Snooze:
        return holdfast.Snooze(timedelta(hours=1))

    for handler in (broken, poisoned, stopped, tired):
        await client.enqueue(handler.job())
    report = await drain(app, db)
    assert report.counts == {"retried": 1, "failed": 2, "cancelled": 1, "snoozed": 1}
    assert [(one.outcome, one.reason) for one in report.of("broken")] == [
        ("retried", "ValueError: no such luck"),
        ("failed", "attempts exhausted (2 of 2): ValueError: no such luck"),
    ]
    assert [one.reason for one in report.of("stopped")] == ["no longer needed"]
    assert [one.delay for one in report.of("tired")] == [3600.0]
    assert "no such luck" in (report.of("broken")[0].error or "")


async def test_sync_handlers_and_transactions_are_drained(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A handler in a thread and one that completes its job in its own transaction both count as completed."""
    app = holdfast.App()

    @app.job
    def in_thread(job: holdfast.Job) -> int:
        job.progress(0.5, "half")
        return job.attempt

    @app.job
    async def in_transaction(job: holdfast.Job) -> None:
        async with job.transaction() as connection:
            await connection.execute("select 1")
            job.result = "done there"

    await client.enqueue(in_thread.job())
    await client.enqueue(in_transaction.job())
    report = await drain(app, db)
    assert report.counts == {"completed": 2}
    assert [one.result for one in report.attempts] == [1, "done there"]


async def test_process_handlers_are_drained(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A handler that belongs into a child process runs in one."""
    app = holdfast.App()
    pid = app.job(executor="process")(handlers.pid)
    await client.enqueue(pid.job())
    report = await drain(app, db)
    assert report.counts == {"completed": 1}
    assert report.of(pid)[0].result != os.getpid()


async def test_scheduled_jobs_are_left_unless_they_are_included(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A delayed job stays scheduled; with include_scheduled the clock moves on to it, then runs as before."""
    app = holdfast.App()

    @app.job
    async def ping() -> None: ...

    await client.enqueue(ping.job(), delay=timedelta(days=400))
    assert (await drain(app, db)).attempts == ()
    began = await Clock(db).now()
    assert (await drain(app, db, include_scheduled=True)).counts == {"completed": 1}
    assert await db.value("select finished_at - created_at from holdfast.job_overview") >= timedelta(days=400)
    assert not await Clock(db).is_stopped()
    assert await Clock(db).now() - began < timedelta(hours=1)


async def test_the_clock_moves_on_to_what_is_drained_alone(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """What is left alone for its kind or queue stays scheduled; what is drained may be due in any year."""
    app = holdfast.App()

    @app.job(queue="mine")
    async def ping() -> None: ...

    other = holdfast.App()

    @other.job(queue="mine")
    async def unknown() -> None: ...

    await db.fetch("insert into holdfast.queues (name, paused) values ('paused', true)")
    await client.enqueue(ping.job(), run_at=datetime(2060, 1, 1, tzinfo=UTC))
    later = [ping.job().with_options(queue="theirs"), ping.job().with_options(queue="paused"), unknown.job()]
    await client.enqueue_many(later, run_at=datetime(2080, 1, 1, tzinfo=UTC))
    report = await drain(app, db, queues=["mine", "paused"], include_scheduled=True)
    assert report.counts == {"completed": 1}
    finished = await db.value("select finished_at from holdfast.job_overview where finished_at is not null")
    assert finished.year == 2060
    assert await db.fetch("select distinct state from holdfast.live_jobs") == [("scheduled",)]


async def test_a_job_that_is_due_is_staged(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Nobody leads in a test, so drain stages what has fallen due by the schema's clock."""
    app = holdfast.App()

    @app.job
    async def ping() -> None: ...

    await client.enqueue(ping.job(), delay=60)
    await Clock(db).advance(61)
    assert (await drain(app, db)).counts == {"completed": 1}
    assert await Clock(db).is_stopped()


async def test_backoff_passes_without_waiting(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """All attempts of a failing job run one after the other, each at its own time."""
    app = holdfast.App()

    @app.job(retry=holdfast.Constant(timedelta(minutes=10)), max_attempts=3)
    async def broken() -> None:
        raise OSError

    await client.enqueue(broken.job())
    report = await drain(app, db, include_scheduled=True)
    assert report.counts == {"retried": 2, "failed": 1}
    passed = "select max(finished_at) - min(created_at) from holdfast.job_overview"
    assert await db.value(passed) >= timedelta(minutes=20)


async def test_limited_and_keyed_jobs_are_drained_and_paused_ones_are_not(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Drain takes the exact way in where limits hold, and respects a pause."""
    app = holdfast.App()

    @app.job
    async def ping() -> None: ...

    for key in ("x", "x", "y"):
        await client.enqueue(ping.job(), queue="keyed", concurrency_key=key)
    await client.enqueue(ping.job(), queue="limited")
    await client.enqueue(ping.job(), queue="paused")
    await db.fetch("insert into holdfast.queues (name, max_running) values ('limited', 1)")
    await db.fetch("insert into holdfast.queues (name, paused) values ('paused', true)")
    report = await drain(app, db)
    assert [one.queue for one in report.attempts] == ["keyed", "keyed", "keyed", "limited"]


async def test_the_first_error_is_raised_as_it_was(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """With stop_on_error a test sees the handler's own exception, and the attempt is written all the same."""
    app = holdfast.App()

    @app.job
    async def broken(n: int) -> None:
        msg = f"number {n}"
        raise KeyError(msg)

    for n in (1, 2):
        await client.enqueue(broken.job(n))
    with pytest.raises(KeyError, match="number 1"):
        await drain(app, db, stop_on_error=True)
    rows = await db.fetch("select state, attempt, failures from holdfast.live_jobs order by job_id")
    assert rows == [("scheduled", 1, 1), ("available", 0, 0)]


async def test_a_returned_retry_stops_a_drain_as_well(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """With stop_on_error a failure without an exception is raised as JobFailed."""
    app = holdfast.App()

    @app.job
    async def again() -> holdfast.Retry:
        return holdfast.Retry(reason="not yet there")

    await client.enqueue(again.job())
    with pytest.raises(holdfast.JobFailed, match="not yet there"):
        await drain(app, db, stop_on_error=True)


async def test_a_job_that_never_ends_is_an_error(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Past the limit drain names the kind, and hands back what it holds."""
    app = holdfast.App()

    @app.job
    async def poll() -> holdfast.Snooze:
        return holdfast.Snooze(0)

    await client.enqueue(poll.job())
    with pytest.raises(DrainEndless, match="5 attempts and is not done, 5 of them of kind 'poll'"):
        await drain(app, db, limit=5)
    assert await db.fetch("select state, failures from holdfast.live_jobs") == [("available", 0)]
    assert await db.fetch("select distinct state from holdfast.workers") == [("offline",)]


async def test_unknown_kinds_are_left_alone(db: ThrowawayDatabase) -> None:
    """A job of a kind that the app does not know stays for others, scheduled or not."""
    app = holdfast.App()
    for delay in ("0 s", "1 hour"):
        await db.fetch("select holdfast.enqueue('alien', delay => $1::text::interval)", delay)
    assert (await drain(app, db, include_scheduled=True)).attempts == ()
    assert await db.value("select count(*) from holdfast.live_jobs where attempt = 0") == 2


async def test_log_lines_and_checkpoints_are_written(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """What a handler says of itself is in the database after a drain."""
    app = holdfast.App()

    @app.job
    async def count(job: holdfast.Job) -> int | holdfast.Snooze:
        done: int = await job.load_checkpoint() or 0
        job.log.info("at %s", done)
        await job.save_checkpoint(done + 1)
        return done if done == 2 else holdfast.Snooze(0)

    await client.enqueue(count.job())
    report = await drain(app, db)
    assert report.attempts[-1].result == 2
    lines = await db.fetch("select attempt, line from holdfast.job_logs order by attempt")
    assert lines == [(1, "at 0"), (2, "at 1"), (3, "at 2")]


async def test_a_timeout_of_the_handler_is_not_one_of_the_test(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A handler that runs too long is ended in the caller's task without ending the caller."""
    app = holdfast.App()

    @app.job(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    await client.enqueue(slow.job())
    report = await drain(app, db)
    assert [one.reason for one in report.attempts] == ["attempts exhausted (1 of 1): timed out after 0.05 s"]


async def test_a_drain_is_the_same_every_time(
    client: holdfast.Client, db: ThrowawayDatabase, dsn: str
) -> None:
    """The same jobs in another schema give the same report."""

    async def run(database: ThrowawayDatabase, client: holdfast.Client) -> list[Any]:
        app = holdfast.App()

        @app.job(retry=AT_ONCE, max_attempts=3)
        async def fork(depth: int) -> int:
            if depth and depth % 2 and not await _seen(database, depth):
                raise OSError
            for n in range(depth):
                await client.enqueue(fork.job(n), priority=n)
            return depth

        await client.enqueue(fork.job(4))
        report = await drain(app, database, include_scheduled=True)
        return [(one.job_id, one.attempt, one.outcome, one.result) for one in report.attempts]

    async with ThrowawayDatabase(dsn) as other, holdfast.Client(dsn, schema=other.schema) as twin:
        first, second = await run(db, client), await run(other, twin)
    assert first == second
    assert len(first) > 16


async def _seen(db: ThrowawayDatabase, depth: int) -> bool:
    seen = "select count(*) from holdfast.attempts a join holdfast.jobs j on j.id = a.job_id"
    return bool(await db.value(f"{seen} where j.args->>'depth' = $1", str(depth)))
