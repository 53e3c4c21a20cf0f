"""The journal writes a handler's lines before its attempt ends."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.testing import Probe, ThrowawayDatabase


async def test_a_line_whose_writing_fails_as_its_attempt_ends_is_written_before_the_report(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    probe: Probe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is neither thrown away nor left for a time when its lease is gone."""
    app, begun, finish = holdfast.App(), asyncio.Event(), asyncio.Event()
    run, ended = Database.run, asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")
        await finish.wait()

    async def cut_once(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        if statement.name == "append_logs" and not begun.is_set():
            begun.set()
            await ended.wait()
            msg = "cut"
            raise DatabaseUnavailable(msg)
        return await run(database, statement, *rest)

    monkeypatch.setattr(Database, "run", cut_once)
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that says it once need not say it again because the database was away for a moment."""
    app, finish, cut = holdfast.App(), asyncio.Event(), asyncio.Event()
    run = Database.run

    @app.job
    async def work_on(job: holdfast.Job) -> None:
        job.progress(0.5, "half")
        await finish.wait()

    async def cut_once(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        if statement.name == "report_progress" and not cut.is_set():
            cut.set()
            msg = "cut"
            raise DatabaseUnavailable(msg)
        return await run(database, statement, *rest)

    monkeypatch.setattr(Database, "run", cut_once)
    await work(app)
    handle = await client.enqueue(work_on.job())
    noted = "select count(*) from holdfast.live_jobs where progress_note = 'half'"
    await eventually(lambda: db.value(noted))
    assert cut.is_set()
    finish.set()
    await client.wait(handle.id, timeout=10)
