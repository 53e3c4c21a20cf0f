"""Enqueues of one client at the same time share commits, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.errors import DatabaseUnavailable, DuplicateJob, InputInvalid
from holdfast.model.job import JobHandle
from holdfast.store.database import Connection
from holdfast.store.enqueuer import MAX_IN_FLIGHT, MAX_JOBS
from holdfast.store.sqlfile import rendered
from holdfast.testing import ThrowawayDatabase

# The transactions that made the jobs.
COMMITS = "select count(distinct xmin::text) from holdfast.jobs"


OURS = "from pg_stat_activity where application_name = 'holdfast client'"


@asynccontextmanager
async def held_up(
    client: holdfast.Client, db: ThrowawayDatabase
) -> AsyncIterator[tuple[list[asyncio.Task[JobHandle]], Connection]]:
    """As many enqueues under way as may be, each alone, arriving after the block; with who holds them up."""
    async with db.database.transaction() as connection:
        await connection.execute(f'lock table "{db.schema}".jobs in exclusive mode')
        gone: list[asyncio.Task[JobHandle]] = []
        while len(gone) < MAX_IN_FLIGHT:
            gone.append(asyncio.create_task(client.enqueue(numbered(1000 + len(gone)))))
            while await connection.fetchval(f"select count(*) {OURS} and wait_event = 'relation'") < len(
                gone
            ):
                await connection.execute("select pg_stat_clear_snapshot()")
        yield gone, connection


def numbered(number: int) -> JobRequest:
    """A job that can be told from others."""
    return JobRequest("echo", f'{{"number": {number}}}')


def spoilt() -> JobRequest:
    """Arguments that PostgreSQL refuses; made by hand, they were checked against no signature."""
    return JobRequest("echo", '{"text": "\\u0000"}')


async def test_enqueues_at_the_same_time_share_commits(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Each caller gets the id of its own job; what is asked for at the same moment goes together."""
    handles = await asyncio.gather(*(client.enqueue(numbered(n)) for n in range(50)))
    rows = await db.fetch("select id, (args ->> 'number')::integer from holdfast.jobs")
    assert {row[0]: row[1] for row in rows} == {handle.id: n for n, handle in enumerate(handles)}
    assert await db.value(COMMITS) == 1


async def test_what_is_asked_for_meanwhile_goes_together(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """While as many statements run as may, the next one grows."""
    async with held_up(client, db) as (gone, _):
        tasks = []
        for n in range(10):
            tasks.append(asyncio.create_task(client.enqueue(numbered(n))))
            await asyncio.sleep(0)
    await asyncio.gather(*gone, *tasks)
    assert await db.value(COMMITS) == MAX_IN_FLIGHT + 1


async def test_one_after_the_other_each_has_a_commit(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Nobody waits for company: an enqueue is there when it returns."""
    for n in range(1, 4):
        handle = await client.enqueue(numbered(n))
        assert await db.value("select max(id) from holdfast.jobs") == handle.id
        assert await db.value(COMMITS) == n


async def test_a_crowd_goes_in_parts(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A statement has so many jobs and no more."""
    await asyncio.gather(*(client.enqueue(numbered(n)) for n in range(3 * MAX_JOBS)))
    most = "select max(n) from (select count(*) as n from holdfast.jobs group by xmin::text) parts"
    assert await db.value(most) == MAX_JOBS
    assert await db.value("select count(*) from holdfast.jobs") == 3 * MAX_JOBS


async def test_a_value_that_is_refused_is_the_error_of_its_caller_alone(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """The others of the same statement go in, once."""
    requests = [spoilt() if n in (7, 12) else numbered(n) for n in range(20)]
    answers = await asyncio.gather(*map(client.enqueue, requests), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, InputInvalid)] == [7, 12]
    assert await db.value("select count(*) from holdfast.jobs") == 18


async def test_what_a_trigger_refuses_in_its_own_words_is_the_error_of_its_caller_alone(
    client: holdfast.Client, db: ThrowawayDatabase, refuse: Any
) -> None:
    """Somebody's trigger may say no under any code."""
    await refuse("new.args ->> 'number' = '7'")
    answers = await asyncio.gather(*(client.enqueue(numbered(n)) for n in range(20)), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [7]
    assert await db.value("select count(*) from holdfast.jobs") == 19


async def test_a_caller_who_gives_up_takes_nobody_along(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """One that has not gone yet never goes; the others do."""
    async with held_up(client, db) as (gone, _):
        tasks = [asyncio.create_task(client.enqueue(numbered(n))) for n in range(10)]
        await asyncio.sleep(0)
        tasks[5].cancel()
    await asyncio.gather(*gone)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [5]
    assert await db.value("select count(*) from holdfast.jobs where args ->> 'number' = '5'") == 0
    assert await db.value("select count(*) from holdfast.jobs") == 9 + MAX_IN_FLIGHT


async def test_keys_go_alone(client: holdfast.Client) -> None:
    """A key that is refused is an error of its own caller, also in a crowd."""
    await client.enqueue(numbered(0), unique_key="a")
    answers = await asyncio.gather(
        *(client.enqueue(numbered(n), unique_key=f"{n % 5}", unique_policy="reject") for n in range(5)),
        client.enqueue(numbered(9), unique_key="a", unique_policy="reject"),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [DuplicateJob]


async def test_jobs_with_concurrency_keys_share_commits(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Once their queue is known to have keys; each has its own."""
    await client.enqueue(numbered(0), concurrency_key="key 0")
    with_key = [client.enqueue(numbered(n), concurrency_key=f"key {n}") for n in range(1, 20)]
    await asyncio.gather(*with_key, *(client.enqueue(numbered(n)) for n in range(20, 40)))
    keys = await db.fetch(
        "select (args ->> 'number')::integer, concurrency_key from holdfast.jobs order by 1"
    )
    assert keys == [(n, f"key {n}" if n < 20 else None) for n in range(40)]
    assert await db.value(COMMITS) == 2


async def test_the_first_keys_of_a_queue_hold_up_no_other_job(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Whoever has the row of the queue lets them wait; the others go on, with a key or without."""
    await client.enqueue(numbered(0), queue="known", concurrency_key="key")
    async with db.database.transaction() as connection:
        await connection.execute(rendered("insert into holdfast.queues (name) values ('default')", db.schema))
        wishes = [client.enqueue(numbered(n), concurrency_key="key") for n in range(1, 1 + MAX_IN_FLIGHT)]
        first = [asyncio.create_task(one) for one in wishes]
        while (
            await connection.fetchval(f"select count(*) {OURS} and wait_event_type = 'Lock'") < MAX_IN_FLIGHT
        ):
            await connection.execute("select pg_stat_clear_snapshot()")
        async with asyncio.timeout(10):
            await asyncio.gather(*(client.enqueue(numbered(n)) for n in range(10, 20)))
            await client.enqueue(numbered(20), queue="known", concurrency_key="key")
        assert not any(one.done() for one in first)
    assert [handle.status for handle in await asyncio.gather(*first)] == ["new"] * MAX_IN_FLIGHT


async def test_a_closed_client_says_so_to_everybody(db: ThrowawayDatabase) -> None:
    """Nobody is left waiting for an answer that cannot come."""
    closed = holdfast.Client(db.dsn, schema=db.schema)
    answers = await asyncio.gather(*(closed.enqueue(numbered(n)) for n in range(10)), return_exceptions=True)
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)


@pytest.mark.parametrize("waiting", [0, 8])
async def test_a_database_that_dies_is_the_error_of_those_on_their_way(
    db: ThrowawayDatabase, waiting: int
) -> None:
    """Sessions that are ended from outside end all enqueues under way; those who wait go on afterwards."""
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        async with held_up(client, db) as (gone, connection):
            tasks = [asyncio.create_task(client.enqueue(numbered(n))) for n in range(waiting)]
            await asyncio.sleep(0)
            await connection.execute(f"select pg_terminate_backend(pid) {OURS}")
            first = await asyncio.gather(*gone, return_exceptions=True)
        assert [type(answer) for answer in first] == [DatabaseUnavailable] * MAX_IN_FLIGHT
        assert len({handle.id for handle in await asyncio.gather(*tasks)}) == waiting
        assert await client.enqueue(numbered(99))
