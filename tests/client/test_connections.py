"""Which connections a client takes, whatever they were set to, and what it says of all others."""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from psycopg.types.json import set_json_dumps
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import holdfast
from holdfast.testing import ThrowawayDatabase

app = holdfast.App()
WHEN = datetime(2031, 3, 4, 5, 6, tzinfo=UTC)


@app.job
async def greet(name: str) -> None:
    """Nobody runs it here."""


@pytest.fixture
def sync_client(db: ThrowawayDatabase) -> Any:
    """A sync client of the test's schema."""
    with holdfast.SyncClient(db.dsn, schema=db.schema) as client:
        yield client


async def stored(db: ThrowawayDatabase) -> list[Any]:
    """The arguments and the due times of all jobs, in order."""
    rows = await db.fetch(
        "select j.args::text, l.run_at from holdfast.jobs j join holdfast.live_jobs l on l.job_id = j.id "
        "order by j.id"
    )
    return [(json.loads(args), run_at) for args, run_at in rows]


async def test_asyncpg_codecs_of_the_caller_do_not_matter(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A connection that turns jsonb and times into objects of the caller's own stores the same job."""
    connection = await asyncpg.connect(db.dsn)
    try:
        for name, encoder in (("json", json.dumps), ("jsonb", json.dumps), ("timestamptz", lambda t: t.text)):
            await connection.set_type_codec(name, encoder=encoder, decoder=str, schema="pg_catalog")
        await client.enqueue(greet.job("Ada"), connection=connection, run_at=WHEN, meta={"a": 1})
    finally:
        await connection.close()
    assert await stored(db) == [({"name": "Ada"}, WHEN)]


async def test_asyncpg_records_of_the_callers_own_class_do_not_matter(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A record class of the caller, and no statement cache, change nothing."""

    class Mine(asyncpg.Record):
        pass

    connection = await asyncpg.connect(db.dsn, record_class=Mine, statement_cache_size=0)
    try:
        handle = await client.enqueue(greet.job("Ada"), connection=connection)
    finally:
        await connection.close()
    assert handle.status is holdfast.Enqueued.NEW
    assert await db.value("select id from holdfast.jobs") == handle.id


@pytest.mark.parametrize("factory", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
async def test_psycopg_settings_of_the_caller_do_not_matter(
    sync_client: holdfast.SyncClient, db: ThrowawayDatabase, factory: Any
) -> None:
    """Row factory, cursor factory, JSON dumper, prepared statements: none of them changes a job."""

    def enqueue() -> list[holdfast.JobHandle]:
        with psycopg.connect(
            db.dsn, row_factory=dict_row, cursor_factory=factory, prepare_threshold=0
        ) as connection:
            set_json_dumps(lambda _: "nonsense", connection)
            one = sync_client.enqueue(greet.job("Ada"), connection=connection, run_at=WHEN)
            return [one, *sync_client.enqueue_many([greet.job("Grace")], connection=connection, run_at=WHEN)]

    handles = await asyncio.to_thread(enqueue)
    assert await stored(db) == [({"name": "Ada"}, WHEN), ({"name": "Grace"}, WHEN)]
    assert [handle.id for handle in handles] == [
        row[0] for row in await db.fetch("select id from holdfast.jobs")
    ]


async def test_async_psycopg_settings_of_the_caller_do_not_matter(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """The row factory of an async psycopg connection does not reach the client."""
    async with await psycopg.AsyncConnection.connect(db.dsn, row_factory=dict_row) as connection:
        handle = await client.enqueue(greet.job("Ada"), connection=connection, run_at=WHEN)
    assert await stored(db) == [({"name": "Ada"}, WHEN)]
    assert await db.value("select id from holdfast.jobs") == handle.id


async def test_on_an_autocommit_connection_the_job_exists_at_once(
    client: holdfast.Client, sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """Without a transaction the enqueue is one of its own, while the connection stays open."""
    async with AsyncExitStack() as stack:
        asynchronous = await psycopg.AsyncConnection.connect(db.dsn, autocommit=True)
        await stack.enter_async_context(asynchronous)
        await client.enqueue(greet.job("Ada"), connection=asynchronous)
        synchronous = stack.enter_context(psycopg.connect(db.dsn, autocommit=True))
        await asyncio.to_thread(sync_client.enqueue, greet.job("Grace"), connection=synchronous)
        engine = create_async_engine(
            db.dsn.replace("postgresql://", "postgresql+asyncpg://"), isolation_level="AUTOCOMMIT"
        )
        stack.push_async_callback(engine.dispose)
        connection = await stack.enter_async_context(engine.connect())
        await client.enqueue(greet.job("Joan"), connection=connection)
        assert [args["name"] for args, _ in await stored(db)] == ["Ada", "Grace", "Joan"]


async def test_a_psycopg_pipeline_goes_on_after_an_enqueue(
    sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """In pipeline mode the enqueue waits for its own answer and takes nobody else's."""

    def enqueue() -> Any:
        with psycopg.connect(db.dsn) as connection, connection.pipeline():
            before = connection.execute("select 'before'")
            handle = sync_client.enqueue(greet.job("Ada"), connection=connection)
            after = connection.execute("select 'after'")
            return before.fetchone(), handle.id, after.fetchone()

    job_id = await db.value("select last_value from holdfast.jobs_id_seq")
    assert await asyncio.to_thread(enqueue) == (("before",), job_id, ("after",))


async def test_a_session_inside_run_sync_takes_the_sync_client(
    sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """The sync face of an AsyncSession, as `run_sync` hands it over, is a Session like any other."""
    engine = create_async_engine(db.dsn.replace("postgresql://", "postgresql+asyncpg://"))
    async with AsyncSession(engine) as session, session.begin():
        await session.run_sync(lambda own: sync_client.enqueue(greet.job("Ada"), connection=own))
    await engine.dispose()
    assert [args["name"] for args, _ in await stored(db)] == ["Ada"]


async def test_a_sync_connection_is_sent_to_the_sync_client(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """The async client names the client that takes the connection, and sends nothing."""
    engine = sqlalchemy.create_engine(db.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with psycopg.connect(db.dsn) as connection, Session(engine) as session:
        for sync in (connection, session):
            with pytest.raises(
                holdfast.ConnectionUnsupported, match=r"a sync connection.*holdfast\.SyncClient"
            ):
                await client.enqueue(greet.job("Ada"), connection=sync)
    engine.dispose()
    assert await stored(db) == []


async def test_an_async_connection_is_sent_to_the_async_client(
    sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """The sync client names the client that takes the connection, and sends nothing."""
    engine = create_async_engine(db.dsn.replace("postgresql://", "postgresql+psycopg://"))
    async with AsyncSession(engine) as session, await psycopg.AsyncConnection.connect(db.dsn) as connection:
        for asynchronous in (connection, session):
            with pytest.raises(
                holdfast.ConnectionUnsupported, match=r"an async connection.*holdfast\.Client"
            ):
                sync_client.enqueue_many([greet.job("Ada")], connection=asynchronous)
    await engine.dispose()
    assert await stored(db) == []


@pytest.mark.parametrize("thing", [object(), "postgresql://secret@host/db", 5, False])
async def test_anything_else_is_refused_with_a_list_of_what_is_taken(
    client: holdfast.Client, sync_client: holdfast.SyncClient, thing: Any
) -> None:
    """The message names the type that was given, never its content, and every type that would do."""
    with pytest.raises(holdfast.ConnectionUnsupported) as refused:
        await client.enqueue(greet.job("Ada"), connection=thing)
    for word in (f"builtins.{type(thing).__name__}", "asyncpg", "AsyncConnection", "AsyncSession", "pool"):
        assert word in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(holdfast.ConnectionUnsupported, match=r"psycopg's Connection.*Session.*Django"):
        sync_client.enqueue(greet.job("Ada"), connection=thing)


async def test_a_pool_an_engine_or_a_cursor_is_refused(
    client: holdfast.Client, sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """What is near a connection but has no transaction is refused with that advice."""
    engine = sqlalchemy.create_engine(db.dsn.replace("postgresql://", "postgresql+psycopg://"))
    async with asyncpg.create_pool(db.dsn, min_size=1, max_size=1) as pool:
        with pytest.raises(holdfast.ConnectionUnsupported, match=r"asyncpg\.pool\.Pool: .*not a pool"):
            await client.enqueue(greet.job("Ada"), connection=pool)
    with psycopg.connect(db.dsn) as connection:
        for thing in (engine, connection.cursor()):
            with pytest.raises(holdfast.ConnectionUnsupported, match=r"not a pool, an engine or a cursor"):
                sync_client.enqueue(greet.job("Ada"), connection=thing)


def test_an_engine_of_another_database_is_refused(sync_client: holdfast.SyncClient) -> None:
    """A connection of SQLAlchemy that leads elsewhere is refused with the engines that would do."""
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(
            holdfast.ConnectionUnsupported, match=r"its engine is sqlite\+pysqlite: use postgresql\+psycopg"
        ),
    ):
        sync_client.enqueue(greet.job("Ada"), connection=connection)
    engine.dispose()


async def test_a_closed_connection_is_unavailable(
    client: holdfast.Client, sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """A connection that the caller has closed raises `DatabaseUnavailable`, caused by the driver's error."""
    asynchronous = await asyncpg.connect(db.dsn)
    await asynchronous.close()
    with pytest.raises(holdfast.DatabaseUnavailable) as first:
        await client.enqueue(greet.job("Ada"), connection=asynchronous)
    assert isinstance(first.value.__cause__, asyncpg.InterfaceError)
    synchronous = psycopg.connect(db.dsn)
    synchronous.close()
    with pytest.raises(holdfast.DatabaseUnavailable) as second:
        sync_client.enqueue(greet.job("Ada"), connection=synchronous)
    assert isinstance(second.value.__cause__, psycopg.OperationalError)


async def test_an_aborted_transaction_is_refused(
    sync_client: holdfast.SyncClient, db: ThrowawayDatabase
) -> None:
    """In a transaction that has failed before, the enqueue says so instead of pretending."""
    with psycopg.connect(db.dsn) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1/0")
        with pytest.raises(holdfast.DatabaseRefused, match="current transaction is aborted"):
            sync_client.enqueue(greet.job("Ada"), connection=connection)


async def test_a_serialization_failure_reaches_the_callers_own_retry(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """An error that only the caller can answer, by trying again, keeps the driver's type."""
    await client.enqueue(greet.job("Ada"), unique_key="k")
    connection = await asyncpg.connect(db.dsn)
    try:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.execute("select 1")
        await client.enqueue(greet.job("Grace"), unique_key="k", unique_policy="replace")
        with pytest.raises(asyncpg.SerializationError):
            await client.enqueue(
                greet.job("Joan"), unique_key="k", unique_policy="replace", connection=connection
            )
        await transaction.rollback()
    finally:
        await connection.close()
    assert [args["name"] for args, _ in await stored(db)] == ["Grace"]
