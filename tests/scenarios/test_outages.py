"""PostgreSQL goes away and comes back: workers and clients go on where they were."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.runtime.embedded import EmbeddedServer
from holdfast.runtime.events import Events
from holdfast.store.sqlfile import rendered
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.config import WorkerConfig
from tests.runners.agent.strait import Wire

JOBS = 600


@pytest.fixture
async def own() -> AsyncIterator[tuple[EmbeddedServer, ThrowawayDatabase]]:
    """A server that only this test breaks, and a schema on it."""
    with (
        tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder,
        EmbeddedServer(Path(folder) / "data") as server,
    ):
        async with ThrowawayDatabase(server.dsn) as db:
            await db.fetch("create table holdfast.effects (n integer)")
            yield server, db


def counting_app(db: ThrowawayDatabase) -> holdfast.App:
    """Each job leaves exactly one row, in the transaction that completes it."""
    app = holdfast.App()
    insert = rendered("insert into holdfast.effects values ($1)", db.schema)

    @app.job(max_attempts=50, retry=holdfast.Constant(timedelta(milliseconds=50)))
    async def count(job: holdfast.Job, n: int) -> None:
        async with job.transaction() as connection:
            await connection.execute(insert, n)

    return app


async def start(
    app: holdfast.App,
    db: ThrowawayDatabase,
    probe: Probe,
    *,
    dsn: str | None = None,
    slots: int = 8,
    ttl: float = 5.0,
    leader_ttl: float = 4.0,
) -> WorkerProcess:
    """A worker inside this loop, which may reach the server by another way."""
    database = replace(db.config, dsn=dsn or db.dsn)
    config = WorkerConfig(database=database, queues=("default",), slots=slots, ttl=ttl)
    process = WorkerProcess(app, config, Events(probe), maintenance=MaintenanceConfig(leader_ttl=leader_ttl))
    await process.start()
    return process


async def enqueue_all(db: ThrowawayDatabase, app: holdfast.App) -> None:
    """Enqueue every job once; a unique key makes an enqueue whose answer was lost safe to repeat."""
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        for n in range(JOBS):
            while True:
                try:
                    await client.enqueue(app.request("count", {"n": n}), unique_key=f"n{n}")
                    break
                except holdfast.DatabaseUnavailable:
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize("immediate", [False, True], ids=["restart", "power cut"])
async def test_postgresql_may_restart_under_load(
    own: tuple[EmbeddedServer, ThrowawayDatabase], probe: Probe, immediate: bool
) -> None:
    """No job is lost and no effect is doubled, though every connection breaks in the middle."""
    server, db = own
    app = counting_app(db)
    processes = [await start(app, db, probe) for _ in range(2)]
    enqueuing = asyncio.create_task(enqueue_all(db, app))
    await probe.wait_for("attempt.ended", times=JOBS // 6)
    await asyncio.to_thread(server.restart, immediate=immediate)
    await enqueuing
    await settled(db)
    for process in processes:
        assert await process.stop()
    # A repeated enqueue whose first answer was lost, and whose job had ended meanwhile, makes the
    # job anew: at most one for each enqueue under way when the server broke.
    assert len(await db.fetch("select distinct n from holdfast.effects")) == JOBS
    assert await db.value("select count(*) from holdfast.effects") <= JOBS + 1
    finished = "select outcome, count(*) from holdfast.finished_jobs group by 1"
    effects = await db.value("select count(*) from holdfast.effects")
    assert await db.fetch(finished) == [("completed", effects)]


async def test_nobody_is_lost_for_an_outage_that_everybody_had(
    db: ThrowawayDatabase,
    client: holdfast.Client,
    wire: tuple[Wire, str],
    probe: Probe,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever comes back first leads, and has to wait for the others: they still do what they did."""
    monkeypatch.setattr("holdfast.store.leader.SILENCE", 1.0)
    app, done = holdfast.App(), asyncio.Event()

    @app.job(timeout=100)
    async def work(job: holdfast.Job) -> int:
        await done.wait()
        return job.attempt

    between, dsn = wire
    processes = [await start(app, db, probe, dsn=dsn, slots=1, leader_ttl=0.5) for _ in range(4)]
    jobs = await client.enqueue_many([work.job() for _ in range(4)])
    await probe.wait_for("attempt.started", times=4)
    between.cut()
    lapsed = "select bool_and(expires_at < now()) from holdfast.workers"
    await eventually(lambda: db.value(lapsed))
    # Nor has any of them been spared in the last two minutes, for a loop that stood still.
    await db.fetch("update holdfast.leader set heard_since = '-infinity'")
    between.mend()
    await eventually(
        lambda: db.value("select bool_and(expires_at > now() or state = 'lost') from holdfast.workers")
    )
    done.set()
    assert [await client.wait(job.id, timeout=30) for job in jobs] == [1, 1, 1, 1]
    assert await db.fetch("select distinct state from holdfast.workers") == [("online",)]
    for process in processes:
        assert await process.stop()


async def settled(db: ThrowawayDatabase) -> None:
    """Wait until nothing is alive any more."""
    async with asyncio.timeout(60):
        while True:
            with suppress(holdfast.DatabaseUnavailable, OSError):
                if not await db.value("select exists (select from holdfast.live_jobs)"):
                    return
            await asyncio.sleep(0.1)


async def test_a_lost_listen_connection_is_replaced(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, probe: Probe
) -> None:
    """After a reconnect the worker looks at once, and notifications arrive again; polling is not needed."""
    app = holdfast.App()

    @app.job
    async def ping() -> str:
        return "pong"

    await work(app, poll=600)
    await probe.wait_for("listen.connected")
    listening = """
        select pg_terminate_backend(pid) from pg_stat_activity
        where query like 'LISTEN%' and query like '%' || $1 || '%'
    """
    assert await db.fetch(listening, db.schema) == [(True,)]
    await probe.wait_for("listen.lost")
    await probe.wait_for("listen.connected", times=2)
    for _ in range(2):
        handle = await client.enqueue(ping.job())
        assert await client.wait(handle.id, timeout=10) == "pong"


async def test_without_listen_polling_finds_the_work(
    client: holdfast.Client, work: Any, probe: Probe
) -> None:
    """Behind a pooler in transaction mode nobody listens and nothing is prepared; jobs still run."""
    app = holdfast.App()

    @app.job
    async def ping() -> str:
        return "pong"

    await work(app, poll=0.1, database={"pgbouncer": True})
    handle = await client.enqueue(ping.job(), delay=0.2)
    assert await client.wait(handle.id, timeout=15) == "pong"
    assert not probe.seen("listen.connected")
