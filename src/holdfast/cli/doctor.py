"""`holdfast doctor`: looks at everything that work depends on, and says what to do where it is not well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import typer

from holdfast.cli.configs import database_config
from holdfast.cli.context import FAILED, Invocation, invocation
from holdfast.cli.output import JsonOption, print_json, print_table
from holdfast.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    HoldfastError,
    SchemaDiffers,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    SettingInvalid,
)
from holdfast.errors.database import migrating
from holdfast.model.health import Finding, Level
from holdfast.rules import diagnosis
from holdfast.runtime.settings import Settings
from holdfast.store import doctor as facts
from holdfast.store import migrate
from holdfast.store.address import shown_address
from holdfast.store.database import Database


def doctor(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Look at settings, database, schema, queues, leader and workers; exit 1 if something is bad."""
    findings = asyncio.run(_collect(invocation(context)))
    if as_json:
        print_json(findings)
    else:
        print_table(("level", "check", "finding"), [row for one in findings for row in _rows(one)])
    if any(one.level is Level.BAD for one in findings):
        raise typer.Exit(FAILED)


def _rows(finding: Finding) -> Iterator[tuple[str, str, str]]:
    yield finding.level.value, finding.check, finding.what
    if finding.remedy is not None:
        yield "", "", f"→ {finding.remedy}"


async def _collect(call: Invocation) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async for finding in _examine(call):
            findings.append(finding)  # noqa: PERF401 - extend would keep nothing where a later one raises
    except HoldfastError as error:
        # What was found so far stands; the rest could not be asked.
        findings.append(diagnosis.bad("database", str(error), "see what the server refuses, and to whom"))
    return findings


async def _examine(call: Invocation) -> AsyncIterator[Finding]:
    """Yield findings until something stands in the way of all further ones."""
    try:
        settings = call.settings()
        config = database_config(settings, application_name="holdfast doctor", pool_size=1)
    except SettingInvalid as error:
        yield diagnosis.bad("settings", str(error), "correct it; `holdfast settings` shows what is in force")
        return
    yield diagnosis.ok("settings", f"schema {settings.schema}")
    database = Database(config)
    try:
        await database.open()
    except (DatabaseUnavailable, DatabaseRefused) as error:
        yield _unreachable(settings, error)
        return
    try:
        async for finding in _examine_server(database):
            yield finding
    finally:
        await database.close()


def _unreachable(settings: Settings, error: Exception) -> Finding:
    where = shown_address(settings.database_url or "")
    return diagnosis.bad(
        "database", f"{where}: {error}", "start the server, or correct database_url, and look at pg_hba.conf"
    )


async def _examine_server(database: Database) -> AsyncIterator[Finding]:
    asked = time.time()
    server = await database.run(facts.server_facts())
    answered = time.time()
    for finding in diagnosis.of_server(server):
        yield finding
    yield diagnosis.of_clock(server.clock - (asked + answered) / 2, (answered - asked) / 2)
    for finding in diagnosis.of_lock_waits(await database.run(facts.lock_waits(diagnosis.LONG_WAIT))):
        yield finding
    for finding in diagnosis.of_horizon(await database.run(facts.horizon_holders())):
        yield finding
    schema = await _schema(database)
    yield schema
    if schema.level is Level.OK:
        async for finding in _examine_schema(database):
            yield finding


async def _schema(database: Database) -> Finding:
    try:
        await migrate.check(database)
    except (SchemaMissing, SchemaTooOld) as error:
        return diagnosis.bad("schema", str(error), migrating(database.schema))
    except SchemaTooNew as error:
        return diagnosis.bad("schema", str(error), "upgrade the holdfast package on this machine")
    except SchemaDiffers as error:
        return diagnosis.bad("schema", str(error), "use the release that made it, or another schema")
    return diagnosis.ok(
        "schema", f"schema {database.schema} is at {migrate.newest()}, as this release needs it"
    )


async def _examine_schema(database: Database) -> AsyncIterator[Finding]:
    yield diagnosis.of_dead_rows(await database.run(facts.dead_rows()))
    for finding in diagnosis.of_queues(await database.run(facts.queue_health())):
        yield finding
    for finding in diagnosis.of_routes(await database.run(facts.route_health())):
        yield finding
    for finding in diagnosis.of_leader(await database.run(facts.leader_health())):
        yield finding
    yield diagnosis.of_rests(await database.run(facts.filled_rests()))
    yield diagnosis.of_held(await database.run(facts.held_for_people()))
    yield diagnosis.of_lost_workers(await database.run(facts.lost_workers(diagnosis.LATELY)))
