"""Brings a schema up to this release: numbered files, forward only, one transaction each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

from holdfast.errors import SchemaDiffers, SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.database import Connection, Database, begun_anew, own_errors
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

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text, the same whatever ends its lines."""
        return sha256("\n".join(self.text.splitlines()).encode()).hexdigest()


def migrations() -> list[Migration]:
    """Return all migrations of this release in order."""
    folder = resources.files("holdfast.store").joinpath("migrations")
    found = [(match, entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))]
    steps = [Migration(int(match[1]), match[2], entry.read_text("utf-8")) for match, entry in found]
    return sorted(steps, key=lambda step: step.number)


def newest() -> int:
    """Return the schema version that this release needs."""
    return migrations()[-1].number


async def check(database: Database) -> None:
    """Raise `SchemaMismatch` unless the database has exactly the schema that this release needs."""
    async with database.connection() as connection:
        applied = await _applied(connection, database.schema)
    if applied is None:
        raise SchemaMissing(database.schema)
    found, needed = _judged(applied, database.schema), newest()
    if found < needed:
        raise SchemaTooOld(database.schema, found=found, needed=needed)


async def migrate(database: Database) -> list[Migration]:
    """Apply what is missing and return it.

    Raises `SchemaTooNew` for a schema ahead of this release, `SchemaDiffers` for one of another edition.
    Safe to start twice at once: whoever comes second waits on an advisory lock and finds nothing to do.
    """
    async with database.transaction() as connection:
        await _begin(connection, database.schema)
        found = _judged(await _applied(connection, database.schema) or {}, database.schema)
    missing = [step for step in migrations() if step.number > found]
    return [step for step in missing if await _apply(database, step)]


async def drop(database: Database, timeout: float | None = LONGEST) -> None:
    """Drop the schema with everything in it: only for one that was made to be thrown away.

    It is begun anew where somebody who still works there made it a deadlock.  *timeout* is in seconds, and
    that of every statement where it is None.
    """

    async def once() -> None:
        async with database.connection() as connection:
            with own_errors(database.schema):
                text = f'drop schema if exists "{database.schema}" cascade'
                await connection.execute(text, timeout=timeout)

    await begun_anew(once)


async def _applied(connection: Connection, schema: str) -> Mapping[int, str | None] | None:
    """Return the checksum of each migration that *schema* has, or None where it was never migrated."""
    with own_errors(schema):
        if await connection.fetchval("select to_regclass($1)", f'"{schema}".schema_versions') is None:
            return None
        # Schemas from before the first release may lack the column; read so, they have no checksum.
        rows = await connection.fetch(
            rendered("select version, to_jsonb(v) ->> 'checksum' from holdfast.schema_versions v", schema)
        )
    return dict(map(tuple, rows))


def _judged(applied: Mapping[int, str | None], schema: str) -> int:
    """Return the version of a schema that this release may have made; raises `SchemaMismatch` for another."""
    found = max(applied, default=0)
    if found > newest():
        raise SchemaTooNew(schema, found=found, known=newest())
    for step in migrations():
        if step.number in applied and applied[step.number] != step.checksum:
            raise SchemaDiffers(schema, step.number)
    return found


async def _apply(database: Database, step: Migration) -> bool:
    async with database.transaction() as connection:
        await _begin(connection, database.schema)
        insert = (
            "insert into holdfast.schema_versions (version, title, checksum) values ($1, $2, $3) "
            "on conflict do nothing returning 1"
        )
        facts = (step.number, step.title, step.checksum)
        if not await connection.fetchval(rendered(insert, database.schema), *facts):
            return False
        with own_errors(database.schema):
            await connection.execute(rendered(step.text, database.schema), timeout=LONGEST)
    return True


async def _begin(connection: Connection, schema: str) -> None:
    with own_errors(schema):
        await _take_turn(connection, schema)


async def _take_turn(connection: Connection, schema: str) -> None:
    # Whoever comes second has nothing to hurry for; what is done to tables keeps to the role's own timeouts.
    await connection.execute("set local lock_timeout = 0; set local statement_timeout = 0")
    await connection.execute(
        "select pg_advisory_xact_lock(hashtext('holdfast migrate'), hashtext($1))", schema, timeout=LONGEST
    )
    await connection.execute("set local lock_timeout to default; set local statement_timeout to default")
    # A role without the right to create schemas may still own one that exists.
    if not await connection.fetchval("select 1 from pg_namespace where nspname = $1", schema):
        await connection.execute(f'create schema "{schema}"')
    await connection.execute(
        rendered(
            "create table if not exists holdfast.schema_versions "
            "(version integer primary key, title text not null, checksum text not null, "
            "applied_at timestamptz not null default now())",
            schema,
        )
    )
