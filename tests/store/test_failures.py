"""What PostgreSQL says is told in words that are true."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseRefused, DatabaseUnavailable, InputInvalid, SchemaMissing
from holdfast.model.outcome import Complete
from holdfast.store import attempts
from holdfast.store.attempts import Ended
from holdfast.store.database import Database
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import Scene, fence

REQUEST = holdfast.JobRequest("greet", "{}")


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_a_schema_lacks_is_named(
    client: holdfast.Client, db: ThrowawayDatabase, colour: str
) -> None:
    """A schema that exists is not said to be missing: the error names the table that is."""
    await db.fetch("alter table holdfast.live_jobs rename to elsewhere")
    remedy = f"run `holdfast migrate --schema {db.schema}`"
    wanted = rf"schema '{db.schema}' is not complete \(.*live_jobs.*\): {remedy}"
    if colour == "async":
        with pytest.raises(SchemaMissing, match=wanted):
            await client.enqueue(REQUEST)
    else:
        own = holdfast.SyncClient(db.dsn, schema=db.schema)
        with own, pytest.raises(SchemaMissing, match=wanted):
            await asyncio.to_thread(own.enqueue, REQUEST)


@pytest.mark.parametrize(
    ("statement", "state", "missing"),
    [
        ("perform * from shop_orders", "42P01", "shop_orders"),
        ("perform shop_total(1)", "42883", "shop_total"),
        ("perform nowhere.total()", "3F000", "nowhere"),
        ("perform new.colour", "42703", "colour"),
    ],
)
async def test_what_a_trigger_of_somebody_else_lacks_is_not_our_schema(
    client: holdfast.Client, db: ThrowawayDatabase, statement: str, state: str, missing: str
) -> None:
    """A trigger that an operator put on a table of ours may break: no migration would help."""
    await db.fetch(
        "create function holdfast.broken() returns trigger language plpgsql as "
        f"$$ begin {statement}; return new; end $$"
    )
    await db.fetch(
        "create trigger broken before insert on holdfast.live_jobs "
        "for each row execute function holdfast.broken()"
    )
    with pytest.raises(DatabaseRefused, match=rf"\({state}\): .*{missing}"):
        await client.enqueue(REQUEST)


async def test_a_command_that_waits_for_a_lock_is_not_said_to_find_no_server(
    scene: Scene,
) -> None:
    """The server is there, and whoever reads of it should look for whom it waits."""
    job, other = await scene.one(), await scene.session()
    held = other.transaction()
    await held.start()
    await scene.execute(other, "select job_id from holdfast.live_jobs where job_id = $1 for update", job.id)
    hasty = Database(replace(scene.db.config, command_timeout=0.3))
    await hasty.open()
    try:
        with pytest.raises(DatabaseUnavailable, match=r"did not answer in time: .* holds a lock"):
            await hasty.run(attempts.finish_jobs([Ended(fence(job), Complete(None))]))
    finally:
        await hasty.close()
    await held.rollback()


async def _in_bulk(client: holdfast.Client, _: ThrowawayDatabase) -> None:
    await client.enqueue_many([REQUEST] * 1_000)


async def _in_a_transaction(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    async with db.database.transaction() as connection:
        await client.enqueue(REQUEST, connection=connection)


async def _from_a_thread(_: holdfast.Client, db: ThrowawayDatabase) -> None:
    with holdfast.SyncClient(db.dsn, schema=db.schema) as own:
        await asyncio.to_thread(own.enqueue, REQUEST)


@pytest.mark.parametrize("enqueue", [_in_bulk, _in_a_transaction, _from_a_thread])
async def test_a_code_that_nobody_knows_refuses_a_value(
    client: holdfast.Client,
    db: ThrowawayDatabase,
    refuse: Callable[[str], Any],
    enqueue: Callable[..., Awaitable[None]],
) -> None:
    """Somebody's trigger may say no under a code of its own: that is an error of Holdfast's too."""
    await refuse("true")
    with pytest.raises(InputInvalid, match="refused a value: not this one") as refused:
        await enqueue(client, db)
    assert getattr(refused.value.__cause__, "sqlstate", None) == "MY001"


async def test_a_server_that_takes_no_writes_is_left(scene: Scene) -> None:
    """After a failover a connection may lead to the former primary: it is not lent again."""
    async with scene.db.database.connection() as connection:
        stale = await connection.fetchval("select pg_backend_pid()")
        await connection.execute("set default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match=r"takes no writes here, as a standby does: .*read-only"):
        await scene.enqueue(1)
    async with scene.db.database.connection() as connection:
        assert await connection.fetchval("select pg_backend_pid()") != stale
    await scene.enqueue(1)


async def test_a_value_that_fits_no_type_is_told_without_its_place_in_a_statement(
    client: holdfast.Client,
) -> None:
    """Which argument of which statement it was says nothing to whoever gave it."""
    with pytest.raises(InputInvalid, match=rf"^PostgreSQL refused a value: {2**63} \(value out of int64"):
        await client.job(2**63)
