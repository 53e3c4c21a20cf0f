"""A throw-away database leaves nothing behind and destroys nothing of others."""

import asyncio
from typing import Any

import pytest

from holdfast.errors import DatabaseUnavailable, InputInvalid, SchemaTooNew
from holdfast.store import migrate
from holdfast.testing import ThrowawayDatabase

THERE = "select count(*) from pg_namespace where nspname = $1"
# A table that is held by somebody who waits for another one.
HELD = """
    select h.relation::regclass::text from pg_locks h join pg_locks w using (pid)
    where h.granted and not w.granted and w.relation = $1::regclass
      and h.relation in (select oid from pg_class where relkind = 'r') and h.mode = 'AccessExclusiveLock'
    limit 1"""


async def test_a_schema_that_exists_is_refused_and_kept(db: ThrowawayDatabase) -> None:
    """A named schema is dropped at the end, so one that somebody else made must not be taken."""
    with pytest.raises(InputInvalid, match="is there already: a throw-away database takes only a new one"):
        async with ThrowawayDatabase(db.dsn, schema=db.schema):
            pass
    assert await db.value("select count(*) from holdfast.jobs") == 0


async def test_a_named_schema_is_made_and_dropped(db: ThrowawayDatabase) -> None:
    """The name is the one that was given, and it is free again afterwards."""
    for _ in range(2):
        async with ThrowawayDatabase(db.dsn, schema="named_by_a_test") as own:
            assert await own.value("select count(*) from holdfast.jobs") == 0
        assert await db.value(THERE, "named_by_a_test") == 0


async def test_a_start_that_fails_leaves_nothing(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the migration fails, the schema is dropped and the connections are closed."""

    async def fail(_database: object) -> None:
        raise SchemaTooNew("x", found=2, known=1)

    monkeypatch.setattr(migrate, "migrate", fail)
    other = ThrowawayDatabase(db.dsn)
    with pytest.raises(SchemaTooNew):
        await other.__aenter__()
    assert await db.value(THERE, other.schema) == 0
    with pytest.raises(DatabaseUnavailable, match="no connections yet"):
        await other.value("select 1")


async def test_a_drop_that_meets_somebody_at_work_is_begun_anew(
    dsn: str, db: ThrowawayDatabase, eventually: Any
) -> None:
    """A worker that is still there may want the tables in another order, and one has to give way."""
    other = ThrowawayDatabase(dsn)
    await other.__aenter__()
    async with db.database.connection() as connection:
        await connection.execute("set deadlock_timeout = '1min'")
        async with connection.transaction():
            wanted = f"{other.schema}.live_jobs"
            await connection.execute(f"lock table {wanted} in access share mode")
            dropping = asyncio.create_task(other.__aexit__(None, None, None))
            held = await eventually(lambda: db.value(HELD, wanted))
            # This waits until the drop is given up.
            await connection.execute(f"lock table {held} in access share mode")
        await dropping
        await connection.execute("reset deadlock_timeout")
    assert await db.value(THERE, other.schema) == 0
