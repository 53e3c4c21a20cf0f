"""Connections are lent to one at a time, in turn, and what broke is never lent again."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from holdfast.errors import DatabaseUnavailable, SettingInvalid
from holdfast.store.database import Connection, Database, DatabaseConfig
from holdfast.store.pool import Pool
from holdfast.store.statement import Statement, first_value
from holdfast.store.sync_database import SyncDatabase

WHO = Statement("who", "select pg_backend_pid()", (), first_value)
SLEEP = Statement("sleep", "select pg_sleep(600)", (), first_value)
ASLEEP = "select pid from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'"
SESSIONS = "select count(*) from pg_stat_activity where application_name = 'opened twice'"


class Door:
    """Opens real connections, counts them, and keeps who asks outside while it is *shut*."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._database = Database(config)
        self.opened: list[Connection] = []
        self.asked, self.failures = asyncio.Semaphore(0), 0
        self.unlocked = asyncio.Event()
        self.unlocked.set()

    async def connect(self) -> Connection:
        """Open a connection, or fail as often as *failures* says."""
        self.asked.release()
        await self.unlocked.wait()
        if self.failures:
            self.failures -= 1
            msg = "the door is stuck"
            raise DatabaseUnavailable(msg)
        connection = await self._database.connect()
        self.opened.append(connection)
        return connection

    def alive(self) -> int:
        """How many connections are open."""
        return sum(not connection.is_closed() for connection in self.opened)


@pytest.fixture
def config(dsn: str) -> DatabaseConfig:
    """Where the pools of this module connect to, one connection each."""
    return DatabaseConfig(dsn=dsn, application_name="pool_test", pool_size=1)


@pytest.fixture
async def door(config: DatabaseConfig) -> AsyncIterator[Door]:
    """Where the pools of a test get their connections."""
    door = Door(config)
    yield door
    for connection in door.opened:
        connection.terminate()


@pytest.fixture
async def beside(config: DatabaseConfig) -> AsyncIterator[Connection]:
    """A connection to look at the others with."""
    connection = await Database(replace(config, application_name="beside")).connect()
    yield connection
    await connection.close()


@pytest.fixture
async def single(config: DatabaseConfig) -> AsyncIterator[Database]:
    """A database with a pool of one."""
    database = Database(config)
    await database.open()
    yield database
    await database.close()


async def ask(pool: Pool) -> asyncio.Task[Connection]:
    """Start to take a connection; when this returns, it has one or waits for it."""
    begun = asyncio.Event()

    async def take() -> Connection:
        begun.set()
        return await pool.take()

    task = asyncio.create_task(take())
    await begun.wait()
    return task


async def served(task: asyncio.Task[Connection]) -> Connection:
    """What a task that asked was lent; one that is forgotten fails instead of hanging."""
    async with asyncio.timeout(20):
        return await task


async def test_many_at_once_open_no_more_than_the_size(door: Door) -> None:
    """A hundred tasks that ask together are all served, by three connections."""
    pool = Pool(door.connect, 3)

    async def use() -> int:
        connection = await pool.take()
        try:
            return int(await connection.fetchval("select pg_backend_pid()"))
        finally:
            pool.give_back(connection)

    async with asyncio.timeout(60):
        pids = await asyncio.gather(*(use() for _ in range(100)))
    assert len(set(pids)) == len(door.opened) == 3
    await pool.close()
    assert door.alive() == 0


async def test_a_connection_has_one_user_at_a_time(door: Door) -> None:
    """What is lent is not idle, and giving it back twice is refused instead of lending it twice."""
    pool = Pool(door.connect, 2)
    first, second = await pool.take(), await pool.take()
    assert first is not second
    assert pool.take_idle() is None
    pool.give_back(first)
    with pytest.raises(KeyError):
        pool.give_back(first)
    assert pool.take_idle() is first
    assert pool.take_idle() is None


async def test_a_statement_is_run_where_its_plan_is(door: Door) -> None:
    """Of what is idle, what has run it before, the last of these first; else what was used last."""
    pool = Pool(door.connect, 3)
    one, other, third = [await pool.take() for _ in range(3)]
    pool.has_run(one, "claim")
    pool.has_run(other, "claim")
    pool.has_run(other, "finish")
    for connection in (one, other, third):
        pool.give_back(connection)
    assert [pool.take_idle(name) for name in ("claim", "claim", "claim")] == [other, one, third]
    for connection in (third, one, other):
        pool.give_back(connection)
    assert pool.take_idle("never run") is other
    assert pool.take_idle("finish") is one
    one.terminate()
    pool.give_back(one)
    assert pool.take_idle("claim") is third


async def test_a_database_knows_which_connection_has_run_what(config: DatabaseConfig) -> None:
    """Two statements that are run again and again, each after the other, keep to a connection each."""
    database = Database(replace(config, pool_size=2))
    await database.open()
    who, too = WHO, replace(WHO, name="who else")
    first, second = await asyncio.gather(database.run(who), database.run(too))
    assert first != second
    ran = [await database.run(one) for one in (who, too, too, who, who)]
    assert ran == [first, second, second, first, first]
    await database.close()


async def test_who_waits_longest_is_served_first(door: Door) -> None:
    """A connection that is given back goes to the first in line, and nobody who comes later overtakes it."""
    pool = Pool(door.connect, 1)
    connection = await pool.take()
    line = [await ask(pool) for _ in range(4)]
    for waiter in line:
        pool.give_back(connection)
        assert pool.take_idle() is None
        late = await ask(pool)
        assert await served(waiter) is connection
        assert not late.done()
        late.cancel()
    assert len(door.opened) == 1


@pytest.mark.parametrize("broken", [False, True], ids=["a connection", "a free place"])
async def test_a_turn_that_comes_with_a_cancellation_is_passed_on(door: Door, broken: bool) -> None:
    """The next in line gets what the cancelled one was woken for."""
    pool = Pool(door.connect, 1)
    connection = await pool.take()
    first, second = await ask(pool), await ask(pool)
    if broken:
        connection.terminate()
    pool.give_back(connection)
    first.cancel()
    lent = await served(second)
    assert first.cancelled()
    assert (lent is connection) is not broken
    assert await lent.fetchval("select 1") == 1


async def test_who_no_longer_waits_is_passed_over(door: Door) -> None:
    """A place in line that was given up before its turn costs the next one nothing."""
    pool = Pool(door.connect, 1)
    connection = await pool.take()
    first, second = await ask(pool), await ask(pool)
    first.cancel()
    pool.give_back(connection)
    assert await served(second) is connection
    third = await ask(pool)
    third.cancel()
    await asyncio.wait([third])
    pool.give_back(connection)
    assert pool.take_idle() is connection


async def test_a_connection_that_dies_on_the_way_to_its_turn_is_replaced(door: Door) -> None:
    """Who was woken for it opens another one in its place."""
    pool = Pool(door.connect, 1)
    connection = await pool.take()
    waiter = await ask(pool)
    pool.give_back(connection)
    connection.terminate()
    lent = await served(waiter)
    assert pool.lost == 1
    assert await lent.fetchval("select 1") == 1
    lent.terminate()
    pool.give_back(lent)
    assert await served(await ask(pool)) is door.opened[2]


async def test_a_failure_to_connect_costs_no_place(door: Door) -> None:
    """A pool of one says that it could not connect, and connects the next time."""
    pool = Pool(door.connect, 1)
    door.failures = 1
    with pytest.raises(DatabaseUnavailable, match="stuck"):
        await pool.take()
    assert await served(await ask(pool)) is door.opened[0]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_who_cannot_connect_passes_its_place_on(door: Door, how: str) -> None:
    """The next in line tries when the one before it fails, or is cancelled while it connects."""
    pool = Pool(door.connect, 1)
    door.unlocked.clear()
    first = await ask(pool)
    await door.asked.acquire()
    second = await ask(pool)
    if how == "failed":
        door.failures = 1
    else:
        first.cancel()
        await asyncio.wait([first])
    door.unlocked.set()
    assert await served(second) is door.opened[0]
    with pytest.raises((DatabaseUnavailable, asyncio.CancelledError)):
        await first


async def test_the_line_survives_cancellations_at_any_moment(door: Door) -> None:
    """After hundreds of tasks that were cut off wherever they were, every place can still be lent."""
    pool, chance = Pool(door.connect, 2), random.Random(7)  # noqa: S311 - a game, no secret

    async def use() -> None:
        connection = await pool.take()
        try:
            assert door.alive() <= 2
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            if chance.random() < 0.05:
                connection.terminate()
        finally:
            pool.give_back(connection)

    for _ in range(40):
        tasks = [asyncio.create_task(use()) for _ in range(12)]
        for task in chance.sample(tasks, 6):
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        async with asyncio.timeout(20):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
    both = [await served(await ask(pool)) for _ in range(2)]
    assert both[0] is not both[1]


@pytest.mark.parametrize("state", ["closed", "in a transaction", "in a failed transaction"])
async def test_what_is_not_fit_is_never_lent_again(door: Door, state: str) -> None:
    """What comes back closed or in a transaction is closed, and another connection opened."""
    pool = Pool(door.connect, 1)
    connection = await pool.take()
    if state == "closed":
        connection.terminate()
    else:
        await connection.execute("begin")
    if state == "in a failed transaction":
        with suppress(asyncpg.DivisionByZeroError):
            await connection.execute("select 1 / 0")
    pool.give_back(connection)
    assert connection.is_closed()
    lent = await pool.take()
    assert lent is not connection
    assert not lent.is_in_transaction()


async def test_what_the_server_ended_while_it_was_idle_is_not_lent(
    door: Door, beside: Connection, eventually: Any
) -> None:
    """After a restart of the server what was idle is dead: each loan opens a new one, and nobody is told."""
    pool = Pool(door.connect, 2)
    old = [await pool.take() for _ in range(2)]
    for connection in old:
        pool.give_back(connection)
        await beside.execute("select pg_terminate_backend($1)", connection.get_server_pid())

    async def noticed() -> bool:
        return door.alive() == 0

    await eventually(noticed)
    new = [await pool.take() for _ in range(2)]
    assert not set(new) & set(old)
    assert [await connection.fetchval("select 1") for connection in new] == [1, 1]


async def test_what_is_idle_for_too_long_is_closed(door: Door, eventually: Any) -> None:
    """Connections that nobody uses end after their time; one that is lent does not."""
    pool = Pool(door.connect, 3, longest_idle=0.01)
    lent, *others = [await pool.take() for _ in range(3)]
    for connection in others:
        pool.give_back(connection)

    async def ended() -> bool:
        return all(connection.is_closed() for connection in others)

    await eventually(ended)
    assert await lent.fetchval("select 1") == 1
    pool.give_back(lent)
    others = [lent]
    await eventually(ended)
    assert await (await pool.take()).fetchval("select 1") == 1


async def test_what_is_used_again_is_not_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time counts from the last use: only what lay below it in the pile is closed when the timer rings."""
    pool, loop = Pool(door.connect, 2, longest_idle=300), asyncio.get_running_loop()
    lower, upper = await pool.take(), await pool.take()
    began = loop.time()
    pool.give_back(lower)
    pool.give_back(upper)
    monkeypatch.setattr(loop, "time", lambda: began + 200)
    assert pool.take_idle() is upper
    pool.give_back(upper)
    monkeypatch.setattr(loop, "time", lambda: began + 400)
    pool._close_unused()
    monkeypatch.undo()
    assert lower.is_closed()
    assert pool.take_idle() is upper
    await pool.close(longest=0)


async def test_closing_turns_away_who_waits_and_waits_for_what_is_lent(door: Door) -> None:
    """Nobody is left in line for ever; what is lent may end its work and is closed then."""
    pool = Pool(door.connect, 2)
    idle, lent = await pool.take(), await pool.take()
    waiters = [await ask(pool), await ask(pool)]
    closing = asyncio.create_task(pool.close())
    for waiter in waiters:
        with pytest.raises(DatabaseUnavailable, match="closed"):
            await served(waiter)
    assert await lent.fetchval("select 1") == 1
    pool.give_back(idle)
    assert not closing.done()
    pool.give_back(lent)
    await closing
    assert door.alive() == 0
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await pool.take()


async def test_what_does_not_come_back_in_time_is_cut(door: Door) -> None:
    """A pool that has waited long enough terminates what is lent, and what is opened later as well."""
    pool = Pool(door.connect, 2)
    lent = await pool.take()
    door.unlocked.clear()
    late = await ask(pool)
    await pool.close(longest=0)
    assert lent.is_closed()
    pool.give_back(lent)
    door.unlocked.set()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await served(late)
    assert door.alive() == 0


async def test_a_pool_of_nothing_is_refused(door: Door) -> None:
    """It could never lend anything: whoever asked would wait for ever."""
    with pytest.raises(SettingInvalid, match="at least 1, got 0"):
        Pool(door.connect, 0)


@pytest.mark.parametrize("way", ["run", "connection"])
async def test_a_statement_that_is_cancelled_takes_its_connection_with_it(
    single: Database, beside: Connection, eventually: Any, way: str
) -> None:
    """Whatever it left half done is gone with its session; the next statement has another one."""

    async def sleep() -> None:
        if way == "run":
            await single.run(SLEEP)
        else:
            async with single.connection() as connection:
                await single.run(SLEEP, connection)

    before = await single.run(WHO)
    sleeping = asyncio.create_task(sleep())
    await eventually(lambda: beside.fetchval(ASLEEP, before))
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await single.run(WHO) != before
    await beside.execute("select pg_terminate_backend($1)", before)


async def test_a_statement_whose_caller_is_closed_takes_its_connection_with_it(
    single: Database, beside: Connection
) -> None:
    """A coroutine that ends in the midst of a statement, as a collected one does, leaves nothing to lend."""
    before = await single.run(WHO)
    closed = single.run(SLEEP)
    closed.send(None)
    closed.close()
    assert await single.run(WHO) != before
    await beside.execute("select pg_terminate_backend($1)", before)


@pytest.mark.parametrize("way", ["run", "connection"])
async def test_a_statement_that_runs_out_of_time_is_stopped_on_the_server(
    config: DatabaseConfig, beside: Connection, way: str
) -> None:
    """Its caller is told that the database is away, and it neither goes on nor keeps its connection."""
    hasty = Database(replace(config, command_timeout=2.0))

    async def sleep() -> None:
        if way == "run":
            await hasty.run(SLEEP)
        else:
            async with hasty.connection() as connection:
                await hasty.run(SLEEP, connection)

    await hasty.open()
    before = await hasty.run(WHO)
    with pytest.raises(DatabaseUnavailable):
        await sleep()
    assert await beside.fetchval(ASLEEP, before) is None
    assert await hasty.run(WHO) != before
    await hasty.close()


async def test_opening_twice_opens_one_pool(
    config: DatabaseConfig, beside: Connection, eventually: Any
) -> None:
    """Two that open at once share the first connection; closed, it can be opened again."""
    database = Database(replace(config, application_name="opened twice"))
    for _ in range(2):
        await asyncio.gather(database.open(), database.open())
        assert await beside.fetchval(SESSIONS) == 1
        await database.close()

        async def left() -> bool:
            return not await beside.fetchval(SESSIONS)

        await eventually(left)
    with pytest.raises(DatabaseUnavailable, match="no connections yet"):
        await database.run(WHO)


async def test_nobody_at_the_address_is_said_with_the_address(config: DatabaseConfig) -> None:
    """A database that is away raises `DatabaseUnavailable`, and what failed to open can be opened later."""
    away = Database(replace(config, dsn="postgresql://127.0.0.1:1/nowhere"))
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:1"):
            await away.open()


async def test_who_waits_for_a_connection_of_a_sync_client_is_told_that_it_was_closed(
    config: DatabaseConfig, eventually: Any
) -> None:
    """In our own words, as of the async one."""
    database = SyncDatabase(replace(config, pool_size=1))
    with database.connection():
        waiting = asyncio.create_task(asyncio.to_thread(database.run, WHO))
        pool = database._pool
        assert pool is not None
        await eventually(lambda: asyncio.sleep(0, pool.get_stats().get("requests_waiting")))
        await asyncio.to_thread(database.close)
        with pytest.raises(DatabaseUnavailable, match="closed meanwhile"):
            await waiting
