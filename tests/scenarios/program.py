"""A worker process for the scenarios: works until SIGTERM and tells its events on stdout, one JSON line each.

    python -m tests.scenarios.program '{"dsn": …, "schema": …, "queues": […], "ttl": 1.0, …}'

``die_at`` kills the process with SIGKILL at its n-th statement, ``die_after`` says whether before the
statement is sent or after PostgreSQL has answered.
"""

import asyncio
import json
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.runtime.events import Events
from holdfast.store.database import DatabaseConfig
from holdfast.worker.config import WorkerConfig

# Read from the command line in `main`; empty where the tests import the kinds.
SETTINGS: dict[str, Any] = {}
app = holdfast.App()


async def connect() -> "asyncpg.Connection[Any]":
    """A connection that knows nothing of Holdfast."""
    return await asyncpg.connect(SETTINGS["dsn"], server_settings={"search_path": SETTINGS["schema"]})


async def note(job: holdfast.Job, what: str) -> None:
    """Write an effect outside of the job's own transaction."""
    connection = await connect()
    try:
        insert = "insert into effects (job_id, attempt, pid, what) values ($1, $2, $3, $4)"
        await connection.execute(insert, job.id, job.attempt, os.getpid(), what)
    finally:
        await connection.close()


@app.job(queue="calm")
async def once(job: holdfast.Job) -> int:
    """Write one effect together with the completion."""
    async with job.transaction() as connection:
        insert = "insert into effects (job_id, attempt, pid, what) values ($1, $2, $3, 'once')"
        await connection.execute(
            insert.replace("effects", f'"{SETTINGS["schema"]}".effects'), job.id, job.attempt, os.getpid()
        )
    return job.attempt


@app.job(queue="calm", timeout=600)
async def gate(job: holdfast.Job, number: int) -> int:
    """Wait until the test opens the gate, in a way that PostgreSQL shows."""
    await note(job, "begun")
    connection = await connect()
    try:
        await connection.execute("select pg_advisory_lock_shared($1)", number)
        await note(job, "through")
    except asyncio.CancelledError:
        await asyncio.shield(note(job, "interrupted"))
        raise
    finally:
        await connection.close()
    return job.attempt


@app.job(queue="calm", timeout=600)
async def stand_still(job: holdfast.Job, seconds: float) -> int:
    """Block the event loop, as bad code does."""
    await note(job, "begun")
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it
    return job.attempt


@app.job(queue="calm", max_attempts=2)
async def crash(job: holdfast.Job) -> None:
    """Take the worker down."""
    await note(job, "begun")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(queue="calm", max_attempts=4, retry=holdfast.Constant(timedelta(milliseconds=50)))
async def stumble(job: holdfast.Job) -> str:
    """Fail once, leave a checkpoint, log and progress; then go on from the checkpoint."""
    job.log.info("attempt %s", job.attempt)
    job.progress(0.5, "half")
    if await job.load_checkpoint() is None:
        await job.save_checkpoint({"seen": job.attempt})
        msg = "stumbled"
        raise RuntimeError(msg)
    return "walked on"


def tell(event: str, fields: dict[str, Any]) -> None:
    """Write one event to stdout."""
    plain = {key: value for key, value in fields.items() if isinstance(value, (int, float, str, bool))}
    if "running" in fields:
        plain["job"], plain["attempt"] = fields["running"].claimed.id, fields["running"].claimed.attempt
    if "fence" in fields:
        plain["job"], plain["attempt"] = fields["fence"].job_id, fields["fence"].attempt
    sys.stdout.write(json.dumps({"event": event, **plain}) + "\n")
    sys.stdout.flush()


def die_at(number: int, after: bool) -> None:
    """Kill this process at its *number*-th statement: the harshest end, at a chosen place."""
    fetch = asyncpg.Connection.fetch
    count = 0

    async def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        dies = count == number
        if dies and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = await fetch(self, *arguments, **options)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    asyncpg.Connection.fetch = counted  # type: ignore[method-assign]


async def main() -> None:
    """Work until SIGTERM."""
    SETTINGS.update(json.loads(sys.argv[1]))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    if "die_at" in SETTINGS:
        die_at(SETTINGS["die_at"], SETTINGS["die_after"])
    database = DatabaseConfig(dsn=SETTINGS["dsn"], schema=SETTINGS["schema"])
    chosen = {key: SETTINGS[key] for key in ("slots", "ttl", "poll", "grace") if key in SETTINGS}
    config = WorkerConfig(database=database, queues=tuple(SETTINGS.get("queues", ["calm"])), **chosen)
    process = WorkerProcess(app, config, Events(tell))
    process.worker.on_drain = ended.set
    await process.start()
    await ended.wait()
    finished = await process.stop()
    sys.exit(0 if finished else 3)


if __name__ == "__main__":
    asyncio.run(main())
