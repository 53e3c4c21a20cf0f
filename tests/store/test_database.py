"""The pool under statements that are cut off."""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from holdfast.errors import DatabaseRefused, HoldfastError
from holdfast.model.audit import Mandate
from holdfast.store import attempts
from holdfast.store.addressed import AddressedDatabase
from holdfast.store.database import Database
from holdfast.store.interventions import cancel_jobs
from holdfast.store.sqlfile import rendered
from holdfast.store.sync_database import SyncDatabase
from tests.store.scene import Scene

LOCK = "set lock_timeout = '10s'; begin; lock table holdfast.queues; rollback"


async def cancel_at_answer(task: asyncio.Task[Any], number: int) -> None:
    """Cancel *task* when the n-th answer it waits for has come and it does not know yet."""
    met: list[object] = []
    while not task.done():
        waiter = getattr(task, "_fut_waiter", None)
        if waiter is not None and waiter.done() and waiter not in met:
            met.append(waiter)
            if len(met) == number:
                task.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_statement_cut_off_between_its_messages_leaves_no_lock_behind(
    scene: Scene, number: int
) -> None:
    """Whichever answer the cancellation comes with, nobody waits for what the statement had read."""
    # A new statement on a warm connection: it is prepared, described and run.
    task = asyncio.create_task(scene.db.fetch("select q.*, q from holdfast.queues q"))
    await cancel_at_answer(task, number)
    await asyncio.gather(task, return_exceptions=True)
    session = await scene.session()
    await session.execute(rendered(LOCK, scene.db.schema))
    assert await scene.db.value("select 1") == 1


async def test_a_transaction_cut_off_leaves_no_lock_behind(scene: Scene) -> None:
    """What a task had locked when it was cancelled is free again, and the pool goes on."""
    locked = asyncio.Event()

    async def hold() -> None:
        async with scene.db.database.transaction() as connection:
            await connection.execute(rendered("lock table holdfast.queues", scene.db.schema))
            locked.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await locked.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    session = await scene.session()
    await session.execute(rendered(LOCK, scene.db.schema))
    assert await scene.db.value("select 1") == 1


async def test_a_transaction_that_could_not_begin_spoils_no_later_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncpg remembers it as open, so its connection is not lent again."""
    execute, refusals = asyncpg.Connection.execute, [asyncpg.QueryCanceledError("canceling statement")]

    async def refused_once(self: Any, query: str, *args: Any, **options: Any) -> Any:
        if query.startswith("BEGIN") and refusals:
            raise refusals.pop()
        return await execute(self, query, *args, **options)

    monkeypatch.setattr(asyncpg.Connection, "execute", refused_once)
    with pytest.raises(DatabaseRefused):
        async with scene.db.database.transaction():
            pass
    for _ in range(3):
        async with scene.db.database.transaction() as connection:
            assert await connection.fetchval("select 1") == 1


async def test_a_process_that_freezes_inside_a_transaction_lets_go_of_its_locks(scene: Scene) -> None:
    """Claims of a limited queue go on although a worker stopped right after it got its turn."""
    frozen = Database(replace(scene.db.config, idle_timeout=1.5))
    await frozen.open()
    lock = attempts.lock_limits("default")

    async def freeze() -> None:
        async with frozen.transaction() as connection:
            await frozen.run(lock, connection)
            async with scene.db.database.transaction() as other:
                await scene.run(lock, other)
            await frozen.run(lock, connection)

    with pytest.raises(HoldfastError):
        await freeze()
    # The pool of the one that froze goes on as well.
    async with frozen.transaction() as connection:
        await frozen.run(lock, connection)
    await frozen.close()


@pytest.mark.parametrize("colour", ["async", "addressed", "sync"])
async def test_a_statement_that_was_given_up_to_another_is_begun_anew(
    scene: Scene, eventually: Any, colour: str
) -> None:
    """An operator who cancels a family while its members end meets them in another order: nobody is told."""
    await scene.enqueue(2)
    first, second = [
        row[0] for row in await scene.db.fetch("select job_id from holdfast.live_jobs order by 1")
    ]
    lock = rendered("select from holdfast.live_jobs where job_id = $1 for update", scene.db.schema)
    statement = cancel_jobs([first, second], Mandate("ada", None))
    session = await scene.session()
    other = session.transaction()
    await other.start()
    await session.execute(lock, second)
    # Who waits so long looks for a deadlock and gives up: let that be the statement.
    await session.execute("set deadlock_timeout = '1min'")
    if colour == "async":
        cancel = asyncio.create_task(scene.db.database.run(statement))
    elif colour == "addressed":
        database = AddressedDatabase(scene.db.database, "192.0.2.7")
        cancel = asyncio.create_task(database.run(statement))
    else:
        cancel = asyncio.create_task(asyncio.to_thread(SyncDatabase(scene.db.config).run, statement))
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and state = 'active'"
    await eventually(lambda: scene.db.value(waiting))
    await session.execute(lock, first)
    await other.rollback()
    assert sorted((await cancel).items()) == [(first, True), (second, True)]
