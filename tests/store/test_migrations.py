"""Migrations: repeatable, safe to start together, and honest about a schema that does not fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from asyncpg.transaction import Transaction

import holdfast
from holdfast.errors import (
    DatabaseRefused,
    SchemaDiffers,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    SettingInvalid,
)
from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome
from holdfast.store import jobs, leader, migrate
from holdfast.store.database import Connection, Database, DatabaseConfig
from holdfast.store.migrate import migrations, newest
from holdfast.store.sqlfile import checked_schema, rendered
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import KIND, Scene

RIVALS_WAITING = """
    select count(*) from pg_stat_activity where application_name ~ '^rival' and wait_event_type = 'Lock'"""
RIVAL_OUTLASTS_ITS_TIMEOUT = """
    select count(*) from pg_stat_activity
    where application_name = 'rival' and wait_event_type = 'Lock'
      and clock_timestamp() - query_start > interval '200 ms'"""
OBJECTS = """
    select c.relkind::text, c.relname from pg_class c where c.relnamespace = to_regnamespace($1)
    union all
    select 'function', p.oid::regprocedure::text from pg_proc p where p.pronamespace = to_regnamespace($1)
    order by 1, 2"""
BOTH = pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])


@pytest.fixture
async def bare(dsn: str) -> AsyncIterator[Database]:
    """A database where the schema was never migrated."""
    database = Database(DatabaseConfig(dsn=dsn, schema="bare_test"))
    await database.open()
    try:
        yield database
    finally:
        async with database.connection() as connection:
            await connection.execute("drop schema if exists bare_test cascade")
        await database.close()


async def objects(connection: Connection, schema: str) -> list[tuple[object, ...]]:
    """Every table, index, view, sequence and function of a schema."""
    return [tuple(row) for row in await connection.fetch(OBJECTS, schema)]


@BOTH
async def test_migrating_twice_does_nothing_the_second_time(bare: Database, version: int) -> None:
    """The first run applies every step in order, the second none, and the schema stays as it is."""
    assert [step.number for step in await migrate.migrate(bare)] == [step.number for step in migrations()]
    async with bare.connection() as connection:
        assert connection.get_server_version().major == version
        before = await objects(connection, "bare_test")
        assert await migrate.migrate(bare) == []
        assert await objects(connection, "bare_test") == before
    await migrate.check(bare)


def test_migrations_are_numbered_without_a_gap() -> None:
    """The steps count from 1, so that a missing file is seen."""
    assert [step.number for step in migrations()] == list(range(1, newest() + 1))


async def held(bare: Database, stack: AsyncExitStack) -> tuple[Transaction, Connection]:
    """Hold the lock of migrations; answers the transaction that does, and a session to look on from."""
    # In a transaction pg_stat_activity stays as it was when it was first asked.
    holding, looking = await bare.connect(), await bare.connect()
    stack.callback(holding.terminate)
    stack.callback(looking.terminate)
    transaction = holding.transaction()
    await transaction.start()
    await holding.execute("select pg_advisory_xact_lock(hashtext('holdfast migrate'), hashtext('bare_test'))")
    return transaction, looking


async def test_two_that_migrate_at_once_apply_every_step_once(bare: Database) -> None:
    """Both wait for the lock and are let go together; between them they apply each step exactly once."""
    async with AsyncExitStack() as stack:
        rivals = [Database(replace(bare.config, application_name=f"rival {n}")) for n in range(2)]
        for rival in rivals:
            await rival.open()
            stack.push_async_callback(rival.close)
        transaction, looking = await held(bare, stack)
        runs = [asyncio.create_task(migrate.migrate(rival)) for rival in rivals]
        async with asyncio.timeout(20):
            while await looking.fetchval(RIVALS_WAITING) < 2:  # noqa: ASYNC110 - a lock wait has no event
                await asyncio.sleep(0.005)
        await transaction.rollback()
        applied = [step.number for run in runs for step in await run]
    assert sorted(applied) == [step.number for step in migrations()]
    await migrate.check(bare)


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_whoever_comes_second_waits_whatever_timeouts_its_role_has(
    bare: Database, setting: str
) -> None:
    """Timeouts of the role end no wait for another one's migration; they are there again for the rest."""
    joined = "&" if "?" in bare.config.dsn else "?"
    address = f"{bare.config.dsn}{joined}{setting}=50ms"
    async with AsyncExitStack() as stack:
        rival = Database(replace(bare.config, dsn=address, application_name="rival"))
        await rival.open()
        stack.push_async_callback(rival.close)
        transaction, looking = await held(bare, stack)
        turn = asyncio.create_task(waited_for_its_turn(rival, setting))
        async with asyncio.timeout(20):
            # A lock wait has no event.
            while not (turn.done() or await looking.fetchval(RIVAL_OUTLASTS_ITS_TIMEOUT)):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await transaction.rollback()
        assert await turn == "50ms"


async def waited_for_its_turn(database: Database, setting: str) -> str:
    """Wait as a migration does; answers what the setting is afterwards."""
    async with database.transaction() as connection:
        await migrate._begin(connection, database.schema)
        shown: str = await connection.fetchval(f"show {setting}")
        return shown


async def test_a_schema_that_was_never_migrated_says_so(bare: Database) -> None:
    """Checking names the schema and what to run; so does a statement that meets it."""
    with pytest.raises(SchemaMissing, match=r"schema 'bare_test' does not exist.*holdfast migrate"):
        await migrate.check(bare)
    with pytest.raises(SchemaMissing, match="bare_test"):
        await bare.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}")]))


async def test_an_older_schema_asks_to_be_migrated(db: ThrowawayDatabase) -> None:
    """A worker that starts on a schema one step behind is told which step and what to run."""
    await db.fetch("delete from holdfast.schema_versions where version = $1", newest())
    with pytest.raises(
        SchemaTooOld,
        match=rf"is at {newest() - 1}, .* needs {newest()}: run `holdfast migrate --schema {db.schema}`",
    ):
        await migrate.check(db.database)


async def test_a_newer_schema_is_refused_and_left_alone(db: ThrowawayDatabase) -> None:
    """Neither check nor migrate touches a schema that a newer release has migrated."""
    await db.fetch(
        "insert into holdfast.schema_versions (version, title, checksum) values (9999, 'from the future', '')"
    )
    async with db.database.connection() as connection:
        before = await objects(connection, db.schema)
        with pytest.raises(SchemaTooNew, match=r"is at 9999, .* upgrade the holdfast package"):
            await migrate.check(db.database)
        with pytest.raises(SchemaTooNew):
            await migrate.migrate(db.database)
        assert await objects(connection, db.schema) == before


@pytest.mark.parametrize(
    "edit",
    [
        "update holdfast.schema_versions set checksum = 'another' where version = 2",
        "alter table holdfast.schema_versions drop column checksum",
    ],
)
async def test_a_schema_made_by_another_edition_is_refused(db: ThrowawayDatabase, edit: str) -> None:
    """Check and migrate name the migration that differs; a table from before the checksums is told alike."""
    await migrate.check(db.database)
    await db.fetch(edit)
    number = 2 if "another" in edit else 1
    wanted = rf"'{db.schema}' was made by another edition of migration {number}: .*HOLDFAST_SCHEMA"
    with pytest.raises(SchemaDiffers, match=wanted):
        await migrate.check(db.database)
    with pytest.raises(SchemaDiffers, match=wanted):
        await migrate.migrate(db.database)


def test_the_ends_of_lines_do_not_change_a_checksum() -> None:
    """A checkout with other line ends makes the same schema, another text another one."""
    step = migrations()[0]
    assert replace(step, text=step.text.replace("\n", "\r\n")).checksum == step.checksum
    assert replace(step, text=step.text + "-- more\n").checksum != step.checksum


@BOTH
async def test_a_schema_at_the_first_step_is_brought_up_with_its_jobs(bare: Database, version: int) -> None:
    """What lies in a schema at step 1 is there after the upgrade and is claimed like any other job."""
    async with bare.transaction() as connection:
        assert connection.get_server_version().major == version
        await migrate._begin(connection, "bare_test")
        await connection.execute(rendered(migrations()[0].text, "bare_test"))
        for text in (
            "insert into holdfast.jobs (kind, queue) values ('greet', 'default')",
            "insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at) "
            "select id, queue, kind, priority, 'available', created_at from holdfast.jobs",
        ):
            await connection.execute(rendered(text, "bare_test"))
        row = "insert into holdfast.schema_versions (version, title, checksum) values (1, 'queue', $1)"
        await connection.execute(rendered(row, "bare_test"), migrations()[0].checksum)
    with pytest.raises(SchemaTooOld):
        await migrate.check(bare)
    assert [step.number for step in await migrate.migrate(bare)] == [step.number for step in migrations()[1:]]
    await migrate.check(bare)
    async with bare.connection() as connection:
        assert await connection.fetchval("select count(*) from bare_test.live_jobs") == 1


async def test_a_step_that_fails_leaves_nothing_behind(
    bare: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is one transaction with its version row: it can be repaired and run again."""
    steps = migrations()
    broken = replace(steps[-1], text=f"{steps[-1].text}\nselect 1 / 0;")
    monkeypatch.setattr(migrate, "migrations", lambda: [*steps[:-1], broken])
    with pytest.raises(Exception, match="division by zero"):
        await migrate.migrate(bare)
    monkeypatch.undo()
    assert [step.number for step in await migrate.migrate(bare)] == [steps[-1].number]


async def test_two_schemas_side_by_side_do_not_see_each_other(dsn: str) -> None:
    """Jobs, leader, limits, locks and notifications of one environment are nothing to the other."""
    async with AsyncExitStack() as stack:
        prod = Scene(await stack.enter_async_context(ThrowawayDatabase(dsn)), stack)
        staging = Scene(await stack.enter_async_context(ThrowawayDatabase(dsn)), stack)
        heard: list[str] = []
        listening = await staging.session()
        await listening.add_listener(staging.db.schema, lambda *args: heard.append(args[-1]))
        await prod.worker()
        worker = await staging.worker()
        for scene in (prod, staging):
            await scene.db.fetch("update holdfast.workers set wakes_below = 10")
        await prod.db.fetch("update holdfast.queues set paused = true, max_running = 0")
        await prod.enqueue()
        assert await staging.states() == {}
        (job_id,) = await staging.enqueue()
        assert [job.id for job in await staging.claim(worker)] == [job_id]
        assert await prod.run(leader.lead("one", None, 60.0)) == 1
        assert await staging.run(leader.lead("another", None, 60.0)) == 1
        await _limits_do_not_wait(prod, staging)
        await staging.db.fetch("select pg_notify('holdfast', 'end')")
        async with asyncio.timeout(10):
            while "end" not in heard:  # noqa: ASYNC110 - asyncpg calls the listener, which only keeps a list
                await asyncio.sleep(0.005)
        assert heard == [f"job:{job_id}:5:default", "end"]


async def _limits_do_not_wait(prod: Scene, staging: Scene) -> None:
    session = await prod.session()
    async with session.transaction():
        await prod.claim_limited(1, connection=session)
        async with asyncio.timeout(5):
            await staging.claim_limited(1)


@pytest.mark.parametrize(
    "schema", ["", "Prod", "1st", "my-schema", 'a"b', "a b", "a;drop", "pg_temp", "x" * 64, "prod\n", "ü"]
)
def test_an_odd_schema_name_is_refused(schema: str) -> None:
    """A name that would need quoting never reaches SQL."""
    with pytest.raises(SettingInvalid, match="is not allowed: use at most 63 lower-case"):
        DatabaseConfig(dsn="postgresql://", schema=schema)


@pytest.mark.parametrize("schema", ["holdfast", "prod", "_x", "a1_b2", "x" * 63, "select"])
def test_a_plain_schema_name_is_taken(schema: str) -> None:
    """Lower-case letters, digits and underscores, up to 63."""
    assert checked_schema(schema) == schema


async def test_a_schema_may_bear_the_longest_name_and_a_key_word(dsn: str) -> None:
    """Quoting and the notification channel carry whatever is allowed."""
    for schema in ("x" * 63, "select"):
        database = Database(DatabaseConfig(dsn=dsn, schema=schema))
        await database.open()
        try:
            await migrate.migrate(database)
            await database.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}")]))
            async with database.connection() as connection:
                await connection.execute(rendered("select pg_notify('holdfast', 'x')", schema))
                await connection.execute(f'drop schema "{schema}" cascade')
        finally:
            await database.close()


async def test_a_role_that_owns_its_schema_needs_no_right_on_the_database(dsn: str) -> None:
    """Where an operator made the schema, its owner migrates and works without the right to create schemas."""
    async with AsyncExitStack() as stack:
        admin = Database(DatabaseConfig(dsn=dsn))
        await admin.open()
        stack.push_async_callback(admin.close)
        async with admin.connection() as connection:
            await connection.execute(
                "drop schema if exists owned cascade; drop role if exists keeper; create role keeper login;"
                "create schema owned authorization keeper"
            )
        config = DatabaseConfig(dsn=dsn.replace("postgres:", "keeper:", 1), schema="owned")
        keeper = Database(config)
        await keeper.open()
        stack.push_async_callback(keeper.close)
        async with keeper.connection() as connection:
            assert await connection.fetchval("select current_user") == "keeper"
            assert not await connection.fetchval(
                "select has_database_privilege(current_database(), 'create')"
            )
        await migrate.migrate(keeper)
        await keeper.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}")]))
        other = Database(replace(config, schema="not_there"))
        await other.open()
        stack.push_async_callback(other.close)
        with pytest.raises(DatabaseRefused, match="permission denied for database"):
            await migrate.migrate(other)
        async with admin.connection() as connection:
            await connection.execute("drop schema owned cascade; drop role keeper")


async def test_the_words_of_the_schema_are_those_of_the_model(db: ThrowawayDatabase) -> None:
    """Every outcome the model knows is one that the tables take, and no other."""
    checks = await db.fetch(
        "select pg_get_constraintdef(c.oid) from pg_constraint c "
        "where c.conrelid = to_regclass($1) and c.contype = 'c'",
        f"{db.schema}.attempts",
    )
    known = {outcome for outcome in Outcome if any(f"'{outcome}'" in text for (text,) in checks)}
    assert known == set(Outcome) - {Outcome.COMPLETED}


async def test_a_program_may_migrate_by_a_call(bare: Database) -> None:
    """Twice at once is safe, the version is answered, and clients of that schema work."""
    dsn, schema = bare.config.dsn, bare.schema
    assert await asyncio.gather(*(holdfast.migrate(dsn, schema=schema) for _ in range(2))) == [newest()] * 2
    async with holdfast.Client(dsn, schema=schema) as client:
        assert (await client.enqueue(holdfast.JobRequest("greet", "{}"))).id == 1
