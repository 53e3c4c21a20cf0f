"""The sync client: the same verbs, many threads, a server that goes away, processes that fork and end."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import holdfast
from holdfast.runtime.embedded import EmbeddedServer
from holdfast.testing import ThrowawayDatabase

app = holdfast.App()


@app.job
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@app.job(max_attempts=1)
async def broken() -> None:
    """Fail."""
    msg = "no such luck"
    raise RuntimeError(msg)


@pytest.fixture
def sync_client(db: ThrowawayDatabase) -> Iterator[holdfast.SyncClient]:
    """A sync client of the test's schema."""
    with holdfast.SyncClient(db.dsn, schema=db.schema, pool_size=2) as client:
        yield client


async def test_a_result_and_a_failure_come_back(sync_client: holdfast.SyncClient, work: Any) -> None:
    """`wait` returns the result of a job, and raises how it failed."""
    await work(app)

    def use() -> Any:
        with pytest.raises(holdfast.JobFailed, match="no such luck"):
            sync_client.wait(sync_client.enqueue(broken.job()).id, timeout=20)
        return sync_client.wait(sync_client.enqueue(add.job(2, 3)).id, timeout=timedelta(seconds=20))

    assert await asyncio.to_thread(use) == 5


async def test_wait_gives_up_in_time_and_knows_no_unknown_job(sync_client: holdfast.SyncClient) -> None:
    """Patience is kept to, an id that never was is named, and a nonsense patience is refused."""
    handle = sync_client.enqueue(add.job(1))
    began = time.monotonic()
    with pytest.raises(holdfast.WaitTimeout, match=r"has not ended within 0\.2 s"):
        sync_client.wait(handle.id, timeout=0.2)
    assert 0.2 <= time.monotonic() - began < 5
    with pytest.raises(holdfast.JobNotFound):
        sync_client.wait(handle.id + 1000)
    with pytest.raises(holdfast.OptionInvalid, match="timeout is nan"):
        sync_client.wait(handle.id, timeout=float("nan"))


async def test_many_threads_share_one_client(sync_client: holdfast.SyncClient, db: ThrowawayDatabase) -> None:
    """Eight threads over two connections enqueue everything once."""

    def enqueue(number: int) -> int:
        return sync_client.enqueue(add.job(number)).id

    with ThreadPoolExecutor(8) as threads:
        ids = await asyncio.to_thread(lambda: list(threads.map(enqueue, range(200))))
    assert len(set(ids)) == 200
    assert await db.value("select count(distinct args ->> 'a') from holdfast.jobs") == 200


async def test_the_client_connects_when_it_is_first_used(db: ThrowawayDatabase) -> None:
    """A client made at import needs no server yet; closed twice, it opens again on the next use."""
    holdfast.SyncClient("postgresql://127.0.0.1:1/nowhere").close()
    client = holdfast.SyncClient(db.dsn, schema=db.schema)
    client.enqueue(add.job(1))
    client.close()
    client.close()
    client.enqueue(add.job(2))
    client.close()
    assert await db.value("select count(*) from holdfast.jobs") == 2


async def test_the_session_is_set_up_behind_the_options_of_the_address(db: ThrowawayDatabase) -> None:
    """Session settings that the caller's address asks for stay beside ours."""
    joined = "&" if "?" in db.dsn else "?"
    address = f"{db.dsn}{joined}options=-c%20lock_timeout%3D4321"
    with holdfast.SyncClient(address, schema=db.schema) as client:
        client.enqueue(add.job(1))
        with client._database.connection() as connection:
            shown = [
                connection.execute(f"show {name}".encode()).fetchone()
                for name in ("lock_timeout", "jit", "timezone", "application_name")
            ]
    assert shown == [("4321ms",), ("off",), ("UTC",), ("holdfast client",)]


@pytest.mark.parametrize("style", ["German", "SQL,DMY", "Postgres,MDY"])
async def test_times_are_read_in_whatever_style_they_are_shown(db: ThrowawayDatabase, style: str) -> None:
    """A role may have its own DateStyle; behind a pooler nobody could set it back."""
    joined = "&" if "?" in db.dsn else "?"
    address = f"{db.dsn}{joined}options={quote(f'-c datestyle={style}')}"
    with holdfast.SyncClient(address, schema=db.schema) as client:
        [handle, *_] = client.enqueue_many([add.job(number) for number in range(600)])
        record = client.job(handle.id)
    assert record is not None
    assert record.created_at == await db.value(
        "select created_at from holdfast.jobs where id = $1", handle.id
    )


async def test_it_works_behind_a_pooler(db: ThrowawayDatabase) -> None:
    """With pgbouncer=True nothing is prepared and no session setting is made."""
    with holdfast.SyncClient(db.dsn, schema=db.schema, pgbouncer=True) as client:
        for number in range(10):
            client.enqueue(add.job(number))
        with client._database.connection() as connection:
            prepared = connection.execute("select count(*) from pg_prepared_statements").fetchone()
    assert prepared == (0,)


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_a_transaction_says_its_isolation_itself(db: ThrowawayDatabase, pgbouncer: bool) -> None:
    """Behind a pooler a role's own default would hold otherwise."""
    joined = "&" if "?" in db.dsn else "?"
    address = f"{db.dsn}{joined}options={quote('-c default_transaction_isolation=serializable')}"
    with (
        holdfast.SyncClient(address, schema=db.schema, pgbouncer=pgbouncer) as client,
        client._database.transaction() as connection,
    ):
        assert connection.execute("show transaction_isolation").fetchone() == ("read committed",)


@pytest.fixture(scope="module")
def frail() -> Iterator[EmbeddedServer]:
    """A server of this module's own, to be stopped and started."""
    with (
        TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder,
        EmbeddedServer(Path(folder) / "data") as server,
    ):
        yield server


async def test_a_restarted_server_is_not_noticed(frail: EmbeddedServer) -> None:
    """Connections that died in the pool while nobody used them are replaced, not handed out."""
    async with ThrowawayDatabase(frail.dsn) as db:
        with holdfast.SyncClient(db.dsn, schema=db.schema, pool_size=3) as client:
            with ThreadPoolExecutor(3) as threads:
                list(threads.map(lambda n: client.enqueue(add.job(n)), range(30)))
            await asyncio.to_thread(frail.restart)
            for number in range(5):
                await asyncio.to_thread(client.enqueue, add.job(number))
        await db.database.close()
        await db.database.open()
        assert await db.value("select count(*) from holdfast.jobs") == 35


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_server_that_is_gone_is_said_at_once(frail: EmbeddedServer, colour: str) -> None:
    """With the server down every verb raises `DatabaseUnavailable` within seconds; then it goes on."""
    async with ThrowawayDatabase(frail.dsn) as db:
        if colour == "sync":
            with holdfast.SyncClient(db.dsn, schema=db.schema) as client:
                await _outlive(frail, lambda: asyncio.to_thread(client.enqueue, add.job(1)))
        else:
            async with holdfast.Client(db.dsn, schema=db.schema) as client_:
                await _outlive(frail, lambda: client_.enqueue(add.job(1)))
        await db.database.close()
        await db.database.open()


async def _outlive(server: EmbeddedServer, enqueue: Any) -> None:
    await enqueue()
    await asyncio.to_thread(server._running().stop)
    try:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(holdfast.DatabaseUnavailable):
                await enqueue()
            assert time.monotonic() - began < 5
    finally:
        await asyncio.to_thread(server._running().ensure_postgres_running)
    await enqueue()


def test_a_server_that_never_was_is_said_at_once() -> None:
    """The first use names the address that does not answer."""
    with pytest.raises(holdfast.DatabaseUnavailable, match=r"127\.0\.0\.1"):
        holdfast.SyncClient("postgresql://127.0.0.1:1/nowhere").open()


@pytest.mark.parametrize("wrong", [{"path": "/nowhere"}, {"netloc": "stranger@"}])
async def test_being_turned_away_is_no_outage(dsn: str, wrong: dict[str, str]) -> None:
    """A wrong name or password is not mended by waiting: both clients say that the server refused."""
    address = urlsplit(dsn)._replace(**wrong).geturl()
    with pytest.raises(holdfast.DatabaseRefused, match="does not exist"):
        holdfast.SyncClient(address).open()
    with pytest.raises(holdfast.DatabaseRefused, match="does not exist"):
        await holdfast.Client(address).open()


async def test_a_missing_schema_says_what_to_do(dsn: str) -> None:
    """Both clients, one job or thousands: the error names the schema and `holdfast migrate`."""
    many = [add.job(n) for n in range(600)]
    with holdfast.SyncClient(dsn, schema="nowhere") as client:
        for call in (
            lambda: client.enqueue(add.job(1)),
            lambda: client.enqueue_many(many),
            lambda: client.wait(1),
        ):
            with pytest.raises(
                holdfast.SchemaMismatch, match=r"'nowhere'.*run `holdfast migrate --schema nowhere`"
            ):
                call()
    async with holdfast.Client(dsn, schema="nowhere") as client_:
        for ask in (client_.enqueue(add.job(1)), client_.enqueue_many(many), client_.wait(1)):
            with pytest.raises(
                holdfast.SchemaMismatch, match=r"'nowhere'.*run `holdfast migrate --schema nowhere`"
            ):
                await ask


PROGRAM = """
import os, sys, holdfast
app = holdfast.App()

@app.job
def add(a: int) -> int:
    return a

client = holdfast.SyncClient(sys.argv[1], schema=sys.argv[2])
client.enqueue(add.job(1))
"""
FORK = """
child = os.fork()
client.enqueue(add.job(2))
if child:
    assert os.waitpid(child, 0)[1] == 0
    client.enqueue(add.job(3))
"""


@pytest.mark.parametrize(("more", "jobs"), [("", 1), (FORK, 4)], ids=["ends", "forks"])
async def test_a_program_that_never_closes(db: ThrowawayDatabase, more: str, jobs: int) -> None:
    """It ends quickly and silently; a forked child works on connections of its own."""

    def run() -> Any:
        command = [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            PROGRAM + more,
            db.dsn,
            db.schema,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env=os.environ
        )

    began = time.monotonic()
    done = await asyncio.to_thread(run)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 10
    assert await db.value("select count(*) from holdfast.jobs") == jobs
