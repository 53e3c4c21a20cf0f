"""The journal writes a handler's lines before its attempt ends."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.testing import Probe, ThrowawayDatabase

TOO_LATE = "attempt 1 of job {} had ended, or lost its lease, before they were written"


async def nothing(_name: str) -> None:
    """Let a statement be."""


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Does something *before* or *after* each statement, given its name: ``around(before=wait)``."""
    run = Database.run

    def stand(*, before: Any = nothing, after: Any = nothing) -> None:
        async def beset(database: Database, statement: Statement[Any], *rest: Any) -> Any:
            await before(statement.name)
            answer = await run(database, statement, *rest)
            await after(statement.name)
            return answer

        monkeypatch.setattr(Database, "run", beset)

    return stand


async def test_a_line_whose_writing_fails_as_its_attempt_ends_is_written_before_the_report(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    probe: Probe,
    around: Any,
) -> None:
    """It is neither thrown away nor left for a time when its lease is gone."""
    app, begun, finish = holdfast.App(), asyncio.Event(), asyncio.Event()
    ended = asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")
        await finish.wait()

    async def cut_once(name: str) -> None:
        if name == "append_logs" and not begun.is_set():
            begun.set()
            await ended.wait()
            msg = "cut"
            raise DatabaseUnavailable(msg)

    around(before=cut_once)
    await work(app)
    handle = await client.enqueue(talk.job())
    async with asyncio.timeout(20):
        await begun.wait()
        finish.set()
        await probe.wait_for("attempt.ended")
        ended.set()
        await client.wait(handle.id)
    assert await db.fetch("select line from holdfast.job_logs") == [("hello",)]


async def test_a_line_under_way_is_not_overtaken_by_the_report(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe, eventually: Any
) -> None:
    """An attempt ends only after the lines that are being written, for its lease ends with it."""
    app = holdfast.App()
    finish = asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")
        await finish.wait()

    await work(app)
    blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1"
    async with db.database.transaction() as connection:
        await connection.execute(f'lock table "{db.schema}".job_logs in exclusive mode')
        handle = await client.enqueue(talk.job())
        await eventually(lambda: db.value(blocked, f'%"{db.schema}".job_logs%'))
        finish.set()
        await probe.wait_for("attempt.ended")
        # A report that does not wait for the line has written the end after these round trips.
        for _ in range(20):
            assert await db.value("select count(*) from holdfast.finished_jobs") == 0
    await client.wait(handle.id, timeout=10)
    assert await db.fetch("select line from holdfast.job_logs") == [("hello",)]


async def test_progress_whose_writing_fails_is_written_by_the_next_turn(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    around: Any,
) -> None:
    """A handler that says it once need not say it again because the database was away for a moment."""
    app, finish, cut = holdfast.App(), asyncio.Event(), asyncio.Event()

    @app.job
    async def work_on(job: holdfast.Job) -> None:
        job.progress(0.5, "half")
        await finish.wait()

    async def cut_once(name: str) -> None:
        if name == "report_progress" and not cut.is_set():
            cut.set()
            msg = "cut"
            raise DatabaseUnavailable(msg)

    around(before=cut_once)
    await work(app)
    handle = await client.enqueue(work_on.job())
    noted = "select count(*) from holdfast.live_jobs where progress_note = 'half'"
    await eventually(lambda: db.value(noted))
    assert cut.is_set()
    finish.set()
    await client.wait(handle.id, timeout=10)


async def test_lines_are_written_though_all_writes_of_ends_were_under_way(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    probe: Probe,
    around: Any,
) -> None:
    """An end waits in its pile while its lines are being written in vain: they still go before it."""
    app, landing = holdfast.App(), asyncio.Event()
    cut = asyncio.Event()

    @app.job
    async def hush() -> None: ...

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")

    async def slow(name: str) -> None:
        if name == "complete_jobs":
            await landing.wait()
        if name == "append_logs" and not cut.is_set():
            cut.set()
            await probe.wait_for("attempt.ended", times=3)
            msg = "cut"
            raise DatabaseUnavailable(msg)

    around(before=slow)
    await work(app)
    for n in (1, 2):
        await client.enqueue(hush.job())
        await probe.wait_for("attempt.ended", times=n)
    handle = await client.enqueue(talk.job())
    await probe.wait_for("service.failed")
    landing.set()
    await client.wait(handle.id, timeout=10)
    assert await db.fetch("select line from holdfast.job_logs") == [("hello",)]


async def test_the_last_lines_are_tried_again_while_the_database_is_away(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, around: Any
) -> None:
    """The end of the attempt waits for the database as well, so its lines need not be given up."""
    app, failures = holdfast.App(), iter(range(3))

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")

    async def away(name: str) -> None:
        if name == "append_logs" and next(failures, None) is not None:
            msg = "away"
            raise DatabaseUnavailable(msg)

    around(before=away)
    await work(app)
    handle = await client.enqueue(talk.job())
    await client.wait(handle.id, timeout=10)
    assert await db.fetch("select line from holdfast.job_logs") == [("hello",)]


async def test_lines_whose_answer_was_lost_are_written_once(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    around: Any,
) -> None:
    """What a write may have put in is not put in again by the one that follows."""
    app, finish = holdfast.App(), asyncio.Event()
    lost = asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")
        await lost.wait()
        job.log.info("again")
        await finish.wait()

    async def lose_answer(name: str) -> None:
        if name == "append_logs" and not lost.is_set():
            lost.set()
            msg = "lost"
            raise DatabaseUnavailable(msg)

    around(after=lose_answer)
    await work(app)
    handle = await client.enqueue(talk.job())
    await eventually(lambda: db.value("select count(*) from holdfast.job_logs where line = 'again'"))
    finish.set()
    await client.wait(handle.id, timeout=10)
    lines = await db.fetch("select line from holdfast.job_logs order by byte_offset")
    assert lines == [("hello",), ("again",)]


async def test_lines_in_doubt_are_written_once_though_others_go_before(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    probe: Probe,
    around: Any,
) -> None:
    """The last lines of another attempt, written in between, say nothing of those whose answer was lost."""
    app, finish = holdfast.App(), asyncio.Event()
    written, losing = asyncio.Event(), asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")
        await finish.wait()

    @app.job
    async def brief(job: holdfast.Job) -> None:
        job.log.info("bye")

    async def lose_answer(name: str) -> None:
        if name == "append_logs" and not written.is_set():
            written.set()
            await losing.wait()
            msg = "lost"
            raise DatabaseUnavailable(msg)

    around(after=lose_answer)
    await work(app)
    talking = await client.enqueue(talk.job())
    await written.wait()
    ending = await client.enqueue(brief.job())
    await probe.wait_for("attempt.ended")
    losing.set()
    await client.wait(ending.id, timeout=10)
    finish.set()
    await client.wait(talking.id, timeout=10)
    lines = await db.fetch("select line from holdfast.job_logs order by job_id, byte_offset")
    assert lines == [("hello",), ("bye",)]


async def test_lines_that_the_database_refuses_are_told_to_be_lost(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """Of an attempt that has lost its lease nothing is written, and somebody may look for it."""
    app, go_on = holdfast.App(), asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        await go_on.wait()
        job.log.info("hello")
        await asyncio.Event().wait()

    await work(app)
    handle = await client.enqueue(talk.job())
    await probe.wait_for("attempt.started")
    await db.fetch("update holdfast.live_jobs set attempt = attempt + 1 where job_id = $1", handle.id)
    go_on.set()
    told = await probe.wait_for("log.lost")
    assert told["lines"] == 1
    assert str(told["error"]) == TOO_LATE.format(handle.id)


async def test_what_is_logged_after_the_own_transaction_is_told_to_be_lost(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """That has ended the attempt, and its log with it."""
    app = holdfast.App()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        async with job.transaction():
            job.log.info("inside")
        job.log.info("after")

    await work(app)
    handle = await client.enqueue(talk.job())
    told = await probe.wait_for("log.lost")
    assert str(told["error"]) == TOO_LATE.format(handle.id)
    assert await db.fetch("select line from holdfast.job_logs") == [("inside",)]
