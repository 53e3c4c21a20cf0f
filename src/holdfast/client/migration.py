"""Migration as a call, for programs that bring their own database up at their start."""

from __future__ import annotations

from holdfast.store import migrate as steps
from holdfast.store.database import Database, DatabaseConfig
from holdfast.store.sqlfile import DEFAULT_SCHEMA


async def migrate(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> int:
    """Bring a schema up to this release, as `holdfast migrate` does; answers its version.

    Safe to start twice at once.  A sync program says ``asyncio.run(holdfast.migrate(dsn))``.
    Raises `SchemaMismatch` for a schema that is newer than this release, and `DatabaseUnavailable`.
    """
    database = Database(
        DatabaseConfig(dsn=dsn, schema=schema, pool_size=1, application_name="holdfast migrate")
    )
    await database.open()
    try:
        await steps.migrate(database)
    finally:
        await database.close()
    return steps.newest()
