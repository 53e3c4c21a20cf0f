"""Databases in other encodings, and environments that ask for one: what goes in comes back as it was."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

import holdfast
from holdfast.runtime.embedded import EmbeddedServer
from holdfast.testing import Probe, ThrowawayDatabase

app = holdfast.App()


@app.job
async def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def dsn(request: pytest.FixtureRequest, server: EmbeddedServer) -> Iterator[str]:
    """The address of a database in that encoding."""
    name = f"in_{request.param.lower()}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        options = f"encoding '{request.param}' template template0 lc_collate 'C' lc_ctype 'C'"
        admin.execute(f"create database {name} {options}".encode())
        yield urlunsplit(urlsplit(server.dsn)._replace(path=f"/{name}"))
        admin.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(params=["", "LATIN1"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment asks libpq for, if anything."""
    if request.param:
        monkeypatch.setenv("PGCLIENTENCODING", request.param)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("count", [1, 600])
async def test_the_sync_client_keeps_letters_as_they_are(db: ThrowawayDatabase, count: int) -> None:
    """One job and a batch that is copied are stored as the async client would store them."""

    def enqueue() -> tuple[holdfast.JobHandle, Any]:
        with holdfast.SyncClient(db.dsn, schema=db.schema) as client:
            handle = client.enqueue_many([greet.job("Zoë")] * count)[0]
            record = client.job(handle.id)
            assert record is not None
            return handle, record.args

    handle, args = await asyncio.to_thread(enqueue)
    assert (handle.status, args) == ("new", {"name": "Zoë"})
    assert await db.value("select args ->> 'name' from holdfast.jobs where id = $1", handle.id) == "Zoë"


async def test_a_worker_keeps_its_lease(db: ThrowawayDatabase, work: Any, probe: Probe) -> None:
    """What the thread that renews reads is text, so it renews again."""
    process = await work(app, ttl=1.5)
    await probe.wait_for("lease.renewed", times=2)
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        assert await client.wait((await client.enqueue(greet.job("Zoë"))).id) == "hello Zoë"
    assert process.lives()
