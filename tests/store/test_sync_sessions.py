"""Sessions of sync handlers go from one to the next, and nothing that one did goes with them."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.numeric import FloatLoader

from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import DatabaseConfig
from holdfast.store.sessions import Sessions
from holdfast.store.sqlfile import rendered
from holdfast.store.sync_sessions import SyncSessions
from holdfast.testing import ThrowawayDatabase

Connection = psycopg.Connection[Any]
Handler = Callable[[Connection], object]

SESSION = "select pg_backend_pid()"
STILL_THERE = "select 1 from pg_stat_activity where pid = any ($1::integer[])"

# What a handler does, how it shows, and what the next one has to see.
LEFT_BEHIND = [
    ("set statement_timeout = '7s'", "show statement_timeout", "0"),
    ("set role pg_monitor", "select current_user = session_user", True),
    ("create temp table mine (n int)", "select to_regclass('mine')::text", None),
    ("select pg_advisory_lock(8)", "select count(*) from pg_locks where objid = 8", 0),
    ("listen mine", "select count(*) from pg_listening_channels()", 0),
    (
        "declare mine cursor with hold for select 1",
        "select count(*) from pg_cursors where name = 'mine'",
        0,
    ),
]


@pytest.fixture
def sessions(db: ThrowawayDatabase) -> Iterator[SyncSessions]:
    """Sessions for handlers of a worker."""
    made = SyncSessions(db.config)
    yield made
    made.close()


@pytest.fixture
async def write(db: ThrowawayDatabase) -> bytes:
    """What a handler writes."""
    await db.fetch("create table holdfast.notes (n int)")
    return rendered("insert into holdfast.notes values (1)", db.schema).encode()


@pytest.fixture
def counted(db: ThrowawayDatabase) -> Callable[[], Awaitable[Any]]:
    """Counts what handlers wrote: ``await counted()``."""
    return lambda: db.value("select count(*) from holdfast.notes")


def one(connection: Connection, statement: str) -> Any:
    """Read one value."""
    row = connection.execute(statement.encode()).fetchone()
    return row[0] if row else None


def after(sessions: SyncSessions, handler: Handler) -> Connection:
    """Let a handler use a connection; lend the next one, which has to be of the same session."""
    first = sessions.lend()
    session = one(first, SESSION)
    first.commit()
    handler(first)
    sessions.take_back(first)
    second = sessions.lend()
    assert one(second, SESSION) == session
    return second


def read_numbers_as_floats(connection: Connection) -> None:
    """Register a loader on the connection alone."""
    connection.adapters.register_loader("numeric", FloatLoader)


def answer_dictionaries(connection: Connection) -> None:
    """Set what rows of the connection are."""
    connection.row_factory = dict_row


def commit_at_once(connection: Connection) -> None:
    """End the transactions of the connection."""
    connection.autocommit = True


def isolate(connection: Connection) -> None:
    """Set how the connection's transactions are isolated."""
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE


def prepare(connection: Connection) -> None:
    """Have a statement prepared, under a name that the next connection gives again."""
    connection.execute("select 'of the first handler'", prepare=True)
    connection.commit()


@pytest.mark.parametrize(
    ("handler", "statement", "untouched"),
    [
        (read_numbers_as_floats, "select 0.1::numeric", Decimal("0.1")),
        (answer_dictionaries, "select 1", 1),
        (commit_at_once, "select 1", 1),
        (isolate, "show transaction_isolation", "read committed"),
        (prepare, "select count(*) from pg_prepared_statements", 0),
    ],
)
def test_what_a_handler_does_to_its_connection_ends_with_it(
    sessions: SyncSessions, handler: Handler, statement: str, untouched: object
) -> None:
    """A float where the next handler expects a `Decimal` would be an amount of money gone wrong."""
    second = after(sessions, handler)
    value = one(second, statement)
    assert (type(value), value) == (type(untouched), untouched)
    assert second.pgconn.transaction_status == TransactionStatus.INTRANS
    sessions.take_back(second)


@pytest.mark.parametrize(("done", "statement", "untouched"), LEFT_BEHIND)
def test_what_a_handler_does_to_its_session_ends_with_it(
    sessions: SyncSessions, done: str, statement: str, untouched: object
) -> None:
    """Committed or not: settings, roles, locks and tables of the session are nobody else's."""

    def committed(connection: Connection) -> None:
        connection.execute(done.encode())
        connection.commit()
        assert one(connection, statement) != untouched
        connection.commit()

    second = after(sessions, committed)
    assert one(second, statement) == untouched
    sessions.take_back(second)


@pytest.mark.parametrize(("done", "statement", "untouched"), LEFT_BEHIND)
async def test_so_it_does_in_the_sessions_of_the_loop(
    db: ThrowawayDatabase, done: str, statement: str, untouched: object
) -> None:
    """Async handlers have the same promise."""
    sessions = Sessions(db.config, 1)
    try:
        async with sessions.transaction() as connection:
            session = await connection.fetchval(SESSION)
            await connection.execute(done)
        async with sessions.transaction() as connection:
            assert await connection.fetchval(SESSION) == session
            assert await connection.fetchval(statement) == untouched
    finally:
        await sessions.close()


async def test_a_role_that_the_address_names_stays(db: ThrowawayDatabase) -> None:
    """Logins that are made for a day own nothing: they have the role of whoever does."""
    config = replace(db.config, dsn=with_role(db.config.dsn))
    sessions, in_threads = Sessions(config, 1), SyncSessions(config)
    try:
        for _ in range(2):
            async with sessions.transaction() as on_loop:
                assert await on_loop.fetchval("select current_user") == "pg_monitor"
            connection = in_threads.lend()
            assert one(connection, "select current_user") == "pg_monitor"
            in_threads.take_back(connection)
    finally:
        await sessions.close()
        in_threads.close()


def with_role(dsn: str) -> str:
    """Add a role that statements run as."""
    return f"{dsn}{'&' if '?' in dsn else '?'}options={quote('-c role=pg_monitor')}"


def leave_a_write(connection: Connection, write: bytes) -> None:
    """Leave a transaction that could be committed."""
    connection.execute(write)


def leave_a_failure(connection: Connection, write: bytes) -> None:
    """Leave a transaction that can only be rolled back."""
    connection.execute(write)
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("select 1 / 0")


def leave_a_pipeline(connection: Connection, _write: bytes) -> None:
    """Leave the connection in a mode in which statements have no answers of their own."""
    connection.pgconn.enter_pipeline_mode()


@pytest.mark.parametrize("leave", [leave_a_write, leave_a_failure, leave_a_pipeline])
async def test_what_is_not_committed_is_undone_and_its_session_closed(
    sessions: SyncSessions, write: bytes, counted: Any, leave: Callable[[Connection, bytes], None]
) -> None:
    """Whatever made it fail, such as a server that only reads by now, is not handed on."""
    first = sessions.lend()
    session = one(first, SESSION)
    first.commit()
    leave(first, write)
    sessions.take_back(first)
    second = sessions.lend()
    assert one(second, SESSION) != session
    second.commit()
    sessions.take_back(second)
    assert await counted() == 0


async def test_plans_made_under_the_settings_of_one_handler_are_not_used_by_the_next(
    sessions: SyncSessions, db: ThrowawayDatabase
) -> None:
    """A function keeps the plans of its statements, and what is constant in them."""
    await db.fetch(
        "create function holdfast.begins() returns text language plpgsql as "
        "$$ begin return (select extract(epoch from '2026-01-01'::timestamptz)::bigint::text); end $$"
    )
    begins = rendered("select holdfast.begins()", db.schema)

    def from_tokyo(connection: Connection) -> None:
        connection.execute("set timezone = 'Asia/Tokyo'")
        assert one(connection, begins) == "1767193200"
        connection.commit()

    second = after(sessions, from_tokyo)
    second.execute("set timezone = 'UTC'")
    assert one(second, begins) == "1767225600"
    second.commit()
    sessions.take_back(second)


async def test_behind_a_pooler_no_session_is_handed_on_nor_reset(db: ThrowawayDatabase) -> None:
    """The next statement may be in a session of somebody else's there."""
    config = replace(db.config, pgbouncer=True)
    on_loop, in_threads = Sessions(config, 1), SyncSessions(config)
    try:
        first = in_threads.lend()
        session = one(first, SESSION)
        first.commit()
        in_threads.take_back(first)
        second = in_threads.lend()
        assert one(second, SESSION) != session
        in_threads.take_back(second)
        async with on_loop.transaction() as connection:
            await connection.execute("create temp table mine (n int)")
        async with on_loop.transaction() as connection:
            assert await connection.fetchval("select to_regclass('mine')::text") == "mine"
    finally:
        in_threads.close()
        await on_loop.close()


FORK = """
import os, sys
from holdfast.store.database import DatabaseConfig
from holdfast.store.sync_sessions import SyncSessions

def session():
    connection = sessions.lend()
    number = connection.execute("select pg_backend_pid()").fetchone()[0]
    connection.commit()
    sessions.take_back(connection)
    return number

sessions = SyncSessions(DatabaseConfig(dsn=sys.argv[1], schema=sys.argv[2]))
first = session()
child = os.fork()
number = session()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert number == session() == first
else:
    assert number != first
"""


def test_a_forked_process_has_sessions_of_its_own(db: ThrowawayDatabase) -> None:
    """Two that write to one socket read each other's answers."""
    command = [sys.executable, "-W", "error", "-c", FORK, db.dsn, db.schema]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_machine_that_is_gone_is_given_up(sessions: SyncSessions) -> None:
    """A session that waited for its next handler does not tell that nobody is there any more."""
    connection = sessions.lend()
    assert connection.info.get_parameters()["tcp_user_timeout"] == "60000"
    sessions.take_back(connection)


def test_a_server_that_says_nothing_is_unavailable() -> None:
    """Something listens there, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nowhere"
        sessions = SyncSessions(DatabaseConfig(dsn=dsn, connect_timeout=2))
        with pytest.raises(DatabaseUnavailable, match="timeout"):
            sessions.lend()


async def test_whoever_keeps_a_connection_finds_it_closed(
    sessions: SyncSessions, write: bytes, counted: Any
) -> None:
    """A statement that comes late must not run in the transaction of another job."""
    kept: list[Connection] = []
    cursors: list[Any] = []

    def keep(connection: Connection) -> None:
        kept.append(connection)
        cursors.extend([connection.cursor(), psycopg.RawCursor(connection)])

    second = after(sessions, keep)
    second.execute("select 1")
    for late in (*kept, *cursors):
        with pytest.raises(psycopg.OperationalError, match="closed"):
            late.execute(write)
    assert kept[0].closed
    kept[0].close()
    second.commit()
    sessions.take_back(second)
    assert await counted() == 0


async def test_a_session_with_a_statement_under_way_is_not_lent_again(
    sessions: SyncSessions, db: ThrowawayDatabase, eventually: Any
) -> None:
    """A thread that the handler began is still at it; as before, it is cut off."""
    await db.fetch("select pg_advisory_lock(7)")
    first = sessions.lend()
    session = one(first, SESSION)
    came: list[BaseException] = []

    def wait() -> None:
        try:
            first.execute("select pg_advisory_lock(7)")
        except psycopg.Error as error:
            came.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting = "select 1 from pg_stat_activity where pid = $1 and wait_event = 'advisory'"
    await eventually(lambda: db.value(waiting, session))
    sessions.take_back(first)
    await asyncio.to_thread(thread.join, 20)
    assert [type(error) for error in came] == [psycopg.OperationalError]
    second = sessions.lend()
    assert one(second, SESSION) != session
    sessions.take_back(second)


async def test_a_session_that_has_ended_meanwhile_is_not_lent(
    sessions: SyncSessions, db: ThrowawayDatabase
) -> None:
    """The server was started anew, or somebody has ended it: the handler gets another one."""
    first = sessions.lend()
    session = one(first, SESSION)
    first.commit()
    sessions.take_back(first)
    assert await db.value("select pg_terminate_backend($1, 20000)", session)
    second = sessions.lend()
    assert one(second, SESSION) != session
    sessions.take_back(second)


async def test_sessions_that_nobody_needs_are_closed(db: ThrowawayDatabase, eventually: Any) -> None:
    """As many as were at work at once stay for a while, and no longer."""
    sessions = SyncSessions(db.config, longest_idle=0.0)
    both = [sessions.lend(), sessions.lend()]
    pids = {one(connection, SESSION) for connection in both}
    assert len(pids) == 2
    for connection in both:
        connection.commit()
        sessions.take_back(connection)

    async def gone() -> bool:
        return await db.fetch(STILL_THERE, [*pids]) == []

    await eventually(gone)
    sessions.close()


async def test_what_is_given_back_after_the_end_is_closed(db: ThrowawayDatabase, eventually: Any) -> None:
    """A thread may return long after its worker has stopped."""
    sessions = SyncSessions(db.config)
    late, idle = sessions.lend(), sessions.lend()
    pids = [one(late, SESSION), one(idle, SESSION)]
    late.commit()
    idle.commit()
    sessions.take_back(idle)
    sessions.close()
    sessions.take_back(late)

    async def gone() -> bool:
        return await db.fetch(STILL_THERE, pids) == []

    await eventually(gone)


def test_a_server_that_is_not_there_is_named() -> None:
    """By its address, as in an async handler."""
    sessions = SyncSessions(DatabaseConfig(dsn="postgresql://nobody@127.0.0.1:1/nowhere"))
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1"):
        sessions.lend()
