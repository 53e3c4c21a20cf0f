"""What a handler may wish for while it runs: checkpoints, progress, log lines."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.runtime.events import Events
from holdfast.store.attempts import Fence
from holdfast.store.database import Database, DatabaseConfig
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.bundles import Bundles
from holdfast.worker.journal import Journal, JournalHandler, current_attempt
from holdfast.worker.running import Held
from tests.worker import handlers

LINES = "select attempt, level, line from holdfast.job_logs order by attempt, byte_offset"


async def test_a_job_goes_on_from_its_checkpoint(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """The state saved by one attempt is loaded by the next ones, until one deletes it."""
    app = single(handlers.checkpoint)
    await work(app)
    assert await run(app) == [{"page": 7, "text": "über\n"}, None]
    assert await db.value("select reason from holdfast.attempts where attempt = 2") == "seen 7"
    assert await db.value("select count(*) from holdfast.checkpoints") == 0


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (
            handlers.old_checkpoint,
            "StateConflict: job 1 is at checkpoint version 9, newer than this handler's 1",
        ),
        (handlers.large_checkpoint, "PayloadTooLarge: .*1,100,002"),
        (handlers.bad_checkpoint, "InputInvalid: the checkpoint cannot be stored: a value of type object"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_checkpoint_that_cannot_be_is_an_error_in_the_handler(
    handler: Any, problem: str, single: Any, work: Any, run: Any
) -> None:
    """The handler meets the same error in every executor, naming what is wrong."""
    app = single(handler, max_attempts=1)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match=problem):
        await run(app)


async def test_the_newest_progress_is_written_while_the_handler_runs(
    single: Any, work: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any, tmp_path: Path
) -> None:
    """Fraction and note are to be seen within a second, with the log lines up to there."""
    app = single(handlers.progress)
    await work(app)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    await eventually(lambda: db.value("select true from holdfast.live_jobs where progress = 0.5"))
    assert await db.value("select progress_note from holdfast.live_jobs") == "half \\x00"
    await eventually(lambda: db.value("select true from holdfast.job_logs where line = 'said so'"))
    (tmp_path / "go").touch()
    await client.wait(job.id, timeout=20)


async def test_both_logs_are_kept_with_their_attempt(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """Lines of job.log and of the standard logging module are kept from INFO up."""
    app = single(handlers.write_logs)
    await work(app)
    await run(app)
    assert await db.fetch(LINES) == [
        (1, "info", "through the job: 1"),
        (1, "warning", "through logging: \\x00 ü"),
    ]


async def test_a_log_call_that_cannot_be_formatted_hurts_no_child(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """As everywhere with the standard logging module, the handler goes on and its next line is kept."""
    app = holdfast.App()
    app.job(kind="it", executor="process")(handlers.log_badly)
    await work(app)
    assert await client.wait((await client.enqueue(app.request("it", {}))).id, timeout=20) == "done"
    assert await db.fetch(LINES) == [(1, "info", "after it")]


def test_a_log_call_that_cannot_be_formatted_hurts_no_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The worker's own log handler tells of it on stderr, as logging does, and raises nothing."""
    database = Database(DatabaseConfig(dsn="postgresql:///nowhere"))
    keeper = JournalHandler(Journal(database, Held(), Events(), Bundles(database)))
    record = logging.LogRecord("tests", logging.INFO, __file__, 1, "%d", ("no number",), None)
    token = current_attempt.set(Fence(1, 1))
    try:
        keeper.handle(record)
    finally:
        current_attempt.reset(token)
    assert "TypeError: %d format" in capsys.readouterr().err


async def test_each_attempt_has_a_log_of_its_own(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """Two attempts write the same; each finds its lines under its own number, from byte 0 on."""
    app = single(handlers.log_and_retry)
    await work(app)
    await run(app)
    rows = await db.fetch("select attempt, byte_offset, line from holdfast.job_logs order by 1, 2")
    assert rows == [(1, 0, "attempt 1"), (1, 10, "more"), (2, 0, "attempt 2"), (2, 10, "more")]


async def test_a_log_past_its_limit_is_cut_with_a_marker(
    single: Any, work: Any, run: Any, db: ThrowawayDatabase
) -> None:
    """What fits into 1 MiB is kept, then one line says that the rest is missing."""
    app = single(handlers.write_much)
    await work(app)
    await run(app)
    kept = await db.fetch("select line from holdfast.job_logs order by byte_offset")
    assert len(kept) == 1047 + 1
    assert kept[1046][0].startswith("01046 ")
    assert kept[1047][0] == "… log cut here: it may have 1,048,576 bytes …"


async def test_jobs_that_run_side_by_side_do_not_mix_their_logs(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """A line belongs to the attempt whose handler wrote it, also from what the handler calls or awaits."""
    app = holdfast.App()
    barrier = asyncio.Barrier(4)

    @app.job
    async def talk(n: int) -> None:
        for _ in range(3):
            await barrier.wait()
            logging.getLogger("tests").warning("this is %d", n)
            await asyncio.gather(asyncio.to_thread(logging.getLogger("tests").warning, "this is %d", n))

    await work(app, slots=4)
    handles = await client.enqueue_many([talk.job(n) for n in range(4)])
    for handle in handles:
        await client.wait(handle.id, timeout=20)
    for n, handle in enumerate(handles):
        lines = await db.fetch("select line from holdfast.job_logs where job_id = $1", handle.id)
        assert lines == [(f"this is {n}",)] * 6


async def test_log_lines_survive_a_database_that_refuses_them_for_a_while(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """Lines that could not be written are kept and written by a later turn, in order."""
    app = holdfast.App()
    go = asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("first")
        await go.wait()
        job.log.info("last")

    await db.fetch(
        "create function holdfast.refuse() returns trigger language plpgsql as $$ begin "
        "raise exception 'disk full' using errcode = 'disk_full'; end $$"
    )
    await db.fetch(
        "create trigger refuse before insert on holdfast.job_logs"
        " for each row execute function holdfast.refuse()"
    )
    await work(app)
    job = await client.enqueue(talk.job())
    await probe.wait_for("service.failed", lambda fields: fields["service"] == "journal")
    # To drop the trigger would lock the partitions in another order than an insert that is under way.
    await db.fetch(
        "create or replace function holdfast.refuse() returns trigger language plpgsql as "
        "$$ begin return new; end $$"
    )
    go.set()
    await client.wait(job.id, timeout=20)
    assert [row[2] for row in await db.fetch(LINES)] == ["first", "last"]


async def test_a_middleware_may_use_the_job_of_a_handler_in_a_thread(
    client: holdfast.Client, work: Any
) -> None:
    """On the loop the same port gives awaitables, so the loop never waits for itself."""
    app = holdfast.App()

    @app.middleware
    async def resume(job: holdfast.Job, call: Any) -> Any:
        await job.save_checkpoint({"by": "middleware"})
        return await call()

    @app.job
    def load(job: holdfast.Job) -> Any:
        return job.load_checkpoint()

    await work(app)
    assert await client.wait((await client.enqueue(load.job())).id, timeout=20) == {"by": "middleware"}
