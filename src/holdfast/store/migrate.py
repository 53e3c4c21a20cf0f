"""Brings a schema up to this release: numbered files, forward only, one transaction each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from holdfast.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.database import Connection, Database, own_errors
from holdfast.store.sqlfile import rendered

# A migration, or the wait for somebody else's, may take its time: a day, in seconds.
LONGEST = 86_400.0

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    title: str
    text: str


def migrations() -> list[Migration]:
    """Return all migrations of this release in order."""
    folder = resources.files("holdfast.store").joinpath("migrations")
    found = [(match, entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))]
    steps = [Migration(int(match[1]), match[2], entry.read_text("utf-8")) for match, entry in found]
    return sorted(steps, key=lambda step: step.number)


def newest() -> int:
    """Return the schema version that this release needs."""
    return migrations()[-1].number


async def version(connection: Connection, schema: str) -> int | None:
    """Return the version of *schema*, or None where it was never migrated."""
    async with own_errors(schema):
        if await connection.fetchval("select to_regclass($1)", f'"{schema}".schema_versions') is None:
            return None
        found: int | None = await connection.fetchval(
            rendered("select max(version) from holdfast.schema_versions", schema)
        )
        return found or 0


async def check(database: Database) -> None:
    """Raise `SchemaMismatch` unless the database has exactly the schema that this release needs."""
    async with database.connection() as connection:
        found = await version(connection, database.schema)
    needed = newest()
    if found is None:
        raise SchemaMissing(database.schema)
    if found < needed:
        raise SchemaTooOld(database.schema, found=found, needed=needed)
    if found > needed:
        raise SchemaTooNew(database.schema, found=found, known=needed)


async def migrate(database: Database) -> list[Migration]:
    """Apply what is missing and return it; raises `SchemaTooNew` for a database ahead of this release.

    Safe to start twice at once: whoever comes second waits on an advisory lock and finds nothing to do.
    """
    async with database.transaction() as connection:
        await _begin(connection, database.schema)
        found = await version(connection, database.schema) or 0
        if found > newest():
            raise SchemaTooNew(database.schema, found=found, known=newest())
    missing = [step for step in migrations() if step.number > found]
    return [step for step in missing if await _apply(database, step)]


async def drop(database: Database) -> None:
    """Drop the schema with everything in it: only for one that was made to be thrown away."""
    async with database.connection() as connection, own_errors(database.schema):
        await connection.execute(f'drop schema if exists "{database.schema}" cascade', timeout=LONGEST)


async def _apply(database: Database, step: Migration) -> bool:
    async with database.transaction() as connection:
        await _begin(connection, database.schema)
        insert = (
            "insert into holdfast.schema_versions (version, title) values ($1, $2) "
            "on conflict do nothing returning 1"
        )
        if not await connection.fetchval(rendered(insert, database.schema), step.number, step.title):
            return False
        async with own_errors(database.schema):
            await connection.execute(rendered(step.text, database.schema), timeout=LONGEST)
    return True


async def _begin(connection: Connection, schema: str) -> None:
    async with own_errors(schema):
        await _take_turn(connection, schema)


async def _take_turn(connection: Connection, schema: str) -> None:
    await connection.execute(
        "select pg_advisory_xact_lock(hashtext('holdfast migrate'), hashtext($1))", schema, timeout=LONGEST
    )
    # A role without the right to create schemas may still own one that exists.
    if not await connection.fetchval("select 1 from pg_namespace where nspname = $1", schema):
        await connection.execute(f'create schema "{schema}"')
    await connection.execute(
        rendered(
            "create table if not exists holdfast.schema_versions "
            "(version integer primary key, title text not null, "
            "applied_at timestamptz not null default now())",
            schema,
        )
    )
