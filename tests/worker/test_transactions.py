"""A handler's own transaction commits its writes together with its job's completion, or nothing."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.worker import handlers

NOTES = "select job_id from holdfast.notes"
FINISHED = "select outcome, result::text, failures from holdfast.finished_jobs"


@pytest.fixture
async def table(db: ThrowawayDatabase) -> str:
    """A table for the handler's writes."""
    await db.fetch("create table holdfast.notes (job_id bigint not null)")
    return f"{db.schema}.notes"


async def test_writes_and_completion_commit_as_one(
    table: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """The note is there, the job is completed with job.result, and what the handler returned is not used."""
    app = single(handlers.transact)
    await work(app)
    noted = await run(app, table=table, how="well")
    assert noted == {"noted": 1}
    assert await db.fetch(NOTES) == [(1,)]
    assert await db.fetch(FINISHED) == [("completed", '{"noted": 1}', 0)]


async def test_logs_up_to_the_commit_are_kept(
    table: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """What the handler logged reaches the log although its own transaction ended the attempt."""
    app = single(handlers.transact)
    await work(app)
    await run(app, table=table, how="well")
    lines = await db.fetch("select attempt, line from holdfast.job_logs order by byte_offset")
    assert lines == [(1, "about to note"), (1, "noted")]


async def test_an_exception_rolls_back_and_is_counted(
    table: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """The first attempt leaves nothing behind, the second one commits."""
    app = single(handlers.transact)
    await work(app)
    assert await run(app, table=table, how="raise") == {"noted": 1}
    assert await db.fetch(NOTES) == [(1,)]
    assert await db.value("select reason from holdfast.attempts") == "RuntimeError: changed its mind"


async def test_a_result_that_cannot_be_kept_rolls_back(
    table: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """A job.result that is no JSON is an error inside the transaction: nothing of it is committed."""
    app = single(handlers.transact, max_attempts=1)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match="the result of 'it' cannot be stored"):
        await run(app, table=table, how="bad result")
    assert await db.fetch(NOTES) == []


async def test_a_commit_that_fails_leaves_the_job_to_be_tried_again(
    table: str, single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """A deferred constraint that breaks at the very end is an error of the attempt, which is reported."""
    await db.fetch(
        "alter table holdfast.notes add constraint once unique (job_id) deferrable initially deferred"
    )
    await db.fetch("insert into holdfast.notes values (1)")
    app = single(handlers.transact, max_attempts=1)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match="UniqueViolation"):
        await run(app, table=table, how="well")
    assert await db.fetch(NOTES) == [(1,)]


async def test_a_lost_lease_refuses_the_commit(
    table: str,
    executor: str,
    single: Any,
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """Declared lost in the middle of its transaction, an attempt commits nothing; its successor does."""
    app = single(handlers.transact_late)
    await work(app, slots=2, ttl=30.0)
    arguments = {"table": table, "folder": str(tmp_path)}
    job = await client.enqueue(app.request("it", arguments))
    await eventually(lambda: asyncio.to_thread((tmp_path / "begun").exists))
    # What a rescue does, without the worker being told.
    await db.fetch(
        "update holdfast.live_jobs set state = 'available', worker_id = null where job_id = $1",
        job.id,
    )
    await db.fetch("select pg_notify('holdfast', 'jobs:0:default')")
    assert await client.wait(job.id, timeout=20) == 2
    (tmp_path / "go").touch()
    came = await eventually(lambda: asyncio.to_thread(_text, tmp_path / "came"))
    assert came == f"LeaseLost: attempt 1 of job {job.id} has lost its lease: stop working on it"
    assert await db.fetch(NOTES) == [(job.id,)]
    assert executor in ("loop", "thread", "process")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_handlers_in_transactions_do_not_starve_their_worker(
    client: holdfast.Client, db: ThrowawayDatabase, work: Any
) -> None:
    """More handlers than the worker has connections save checkpoints from inside their transactions."""
    app = holdfast.App()
    barrier = asyncio.Barrier(8)

    @app.job
    async def busy(job: holdfast.Job) -> None:
        async with job.transaction() as connection:
            await barrier.wait()
            await job.save_checkpoint({"inside": True})
            job.result = await connection.fetchval("select current_setting('plan_cache_mode')")

    await work(app, slots=8, database={"pool_size": 3})
    handles = await client.enqueue_many([busy.job() for _ in range(8)])
    results = [await client.wait(handle.id, timeout=20) for handle in handles]
    assert results == ["auto"] * 8
    assert await db.value("select count(*) from holdfast.checkpoints") == 8


async def test_the_server_hears_of_it_where_a_handlers_machine_is_gone(
    client: holdfast.Client, work: Any
) -> None:
    """What its transaction has locked is free again then; the handler still chooses how it is isolated."""
    app = holdfast.App()
    source = "select source from pg_settings where name = 'tcp_keepalives_idle'"

    @app.job
    async def on_loop(job: holdfast.Job) -> None:
        async with job.transaction() as connection:
            job.result = await connection.fetchval(source)

    @app.job
    def in_thread(job: holdfast.Job) -> None:
        with job.transaction() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            job.result = connection.execute(source).fetchone()[0]

    await work(app)
    handles = await client.enqueue_many([on_loop.job(), in_thread.job()])
    assert [await client.wait(one.id, timeout=20) for one in handles] == ["client", "session"]


async def test_the_next_handler_gets_the_session_of_the_one_before(single: Any, work: Any, run: Any) -> None:
    """To open one for each job costs the server several milliseconds."""
    app = single(handlers.tell)
    await work(app)
    before = await run(app, statement="select pg_backend_pid()")
    assert await run(app, statement="select pg_backend_pid()") == before


async def test_behind_a_pooler_no_handlers_session_is_set_up(single: Any, work: Any, run: Any) -> None:
    """What is set there stays with a connection that others use."""
    app = single(handlers.tell)
    await work(app, database={"pgbouncer": True})
    source = "select source from pg_settings where name = 'tcp_keepalives_idle'"
    assert await run(app, statement=source) == "default"


async def test_a_handler_that_enters_the_wrong_way_is_told_the_right_one(
    client: holdfast.Client, work: Any
) -> None:
    """With and async with are not interchangeable, and the error says which one fits."""
    app = holdfast.App()

    @app.job(max_attempts=1)
    async def mixed_up(job: holdfast.Job) -> None:
        with job.transaction():
            pass

    await work(app)
    with pytest.raises(holdfast.JobFailed, match=r"write `async with job\.transaction"):
        await client.wait((await client.enqueue(mixed_up.job())).id, timeout=20)
