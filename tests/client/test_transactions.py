"""A job is part of the caller's transaction, whatever library the caller speaks to PostgreSQL with."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.client.callers import CALLERS, Caller, caller

app = holdfast.App()


@app.job(queue="mail")
async def greet(name: str, extra: Any = None) -> None:
    """Nobody runs it here."""


@pytest.fixture(params=CALLERS, ids=lambda name: name.replace(" ", "-"))
async def place(request: pytest.FixtureRequest, db: ThrowawayDatabase) -> AsyncIterator[Caller]:
    """A caller in the middle of a transaction, once for each library."""
    async with caller(request.param, db) as opened:
        yield opened


async def names(db: ThrowawayDatabase) -> list[str]:
    """The names to be greeted, in the order of enqueue, as another session sees them."""
    rows = await db.fetch("select args ->> 'name' from holdfast.jobs order by id")
    return [row[0] for row in rows]


async def test_a_job_is_committed_with_the_caller(place: Caller, db: ThrowawayDatabase) -> None:
    """Nobody sees the job before the caller commits; then it is there with the caller's own rows."""
    await db.fetch("create table holdfast.orders (id integer)")
    await place.execute(f'insert into "{db.schema}".orders values (1)')  # noqa: S608 - a schema of our own
    handle = await place.enqueue(greet.job("Ada"))
    assert await names(db) == []
    await place.commit()
    assert await names(db) == ["Ada"]
    assert await db.value("select job_id from holdfast.live_jobs where state = 'available'") == handle.id
    assert await db.value("select count(*) from holdfast.orders") == 1


async def test_a_job_is_rolled_back_with_the_caller(place: Caller, db: ThrowawayDatabase) -> None:
    """What was enqueued in a transaction that is rolled back never existed; the connection goes on."""
    await place.enqueue(greet.job("Ada"))
    await place.enqueue_many([greet.job("Grace"), greet.job("Joan")])
    await place.rollback()
    assert await names(db) == []
    await place.enqueue(greet.job("Mary"))
    await place.commit()
    assert await names(db) == ["Mary"]


async def test_many_jobs_are_committed_with_the_caller_in_order(place: Caller, db: ThrowawayDatabase) -> None:
    """The handles answer the requests in order, past the number where COPY would take over too."""
    requests = [greet.job(f"n{n}") for n in range(600)]
    handles = await place.enqueue_many(requests)
    await place.commit()
    assert await names(db) == [f"n{n}" for n in range(600)]
    rows = await db.fetch("select id from holdfast.jobs order by id")
    assert [handle.id for handle in handles] == [row[0] for row in rows]


async def test_every_option_arrives_as_it_was_given(place: Caller, db: ThrowawayDatabase) -> None:
    """Arrays, JSON, times and missing values go through each driver unchanged."""
    when = datetime(2031, 3, 30, 2, 30, 0, 123456, tzinfo=UTC)
    tricky = "quo\"te \\ back\\\\slash, comma {brace} %s %(x)s $1 'tick' ünï 🐙"
    await place.enqueue(
        greet.job(tricky, {"a": [1, 2.5, None, True, tricky]}),
        run_at=when,
        priority=0,
        max_attempts=7,
        timeout=timedelta(minutes=1, milliseconds=5),
        retry=holdfast.Constant(timedelta(seconds=3)),
        unique_key=tricky,
        concurrency_key=tricky,
        tags=[tricky, "null", "a b"],
        meta={tricky: None},
        parent_id=2**40,
        trace=tricky,
    )
    await place.enqueue_many([greet.job("plain"), greet.job("none")])
    await place.commit()
    stored = await db.fetch(
        "select j.args::text, j.meta::text, l.run_at, l.priority, j.max_attempts, j.timeout, l.unique_key, "
        "l.concurrency_key, j.tags, j.parent_id, j.trace, l.state, j.retry ->> 'kind' "
        "from holdfast.jobs j join holdfast.live_jobs l on l.job_id = j.id order by j.id"
    )
    args, meta, *rest = stored[0]
    assert json.loads(args) == {"name": tricky, "extra": {"a": [1, 2.5, None, True, tricky]}}
    assert json.loads(meta) == {tricky: None}
    assert rest[:6] == [when, 0, 7, 60.005, tricky, tricky]
    assert rest[6:] == [[tricky, "null", "a b"], 2**40, tricky, "scheduled", "constant"]
    assert [row[6:] for row in stored[1:]] == [(None, None, [], None, None, "available", None)] * 2


async def test_jobs_that_are_alike_arrive_as_they_were_given(place: Caller, db: ThrowawayDatabase) -> None:
    """They take another statement than those with keys: through each driver it gives the same."""
    tricky = "quo\"te \\ back\\\\slash, comma {brace} %s %(x)s $1 'tick' ünï 🐙"
    alike = [greet.job(tricky), greet.job("NULL"), greet.job("")]
    own = {"tags": [tricky, "null"], "meta": {tricky: None}, "trace": tricky, "parent_id": 2**40}
    retry = holdfast.Constant(timedelta(seconds=3))
    await place.enqueue_many(alike, **own)
    await place.enqueue_many(alike, delay=timedelta(minutes=5), timeout=timedelta(minutes=1), retry=retry)
    await place.commit()
    assert await names(db) == [tricky, "NULL", ""] * 2
    stored = await db.fetch(
        "select j.tags, j.meta::text, j.trace, j.parent_id, l.state, j.timeout, j.retry ->> 'kind' "
        "from holdfast.jobs j join holdfast.live_jobs l on l.job_id = j.id order by j.id"
    )
    meta = json.dumps({tricky: None}, ensure_ascii=False)
    assert stored[:3] == [([tricky, "null"], meta, tricky, 2**40, "available", 300.0, None)] * 3
    assert stored[3:] == [([], "{}", None, None, "scheduled", 60.0, "constant")] * 3


async def test_a_unique_key_holds_inside_one_transaction(place: Caller, db: ThrowawayDatabase) -> None:
    """A transaction sees the keys that it has itself taken and not yet committed."""
    first = await place.enqueue(greet.job("Ada"), unique_key="k")
    kept = await place.enqueue(greet.job("Grace"), unique_key="k")
    assert (kept.id, kept.status) == (first.id, holdfast.Enqueued.KEPT)
    replaced = await place.enqueue(greet.job("Joan"), unique_key="k", unique_policy="replace")
    assert (replaced.id, replaced.status) == (first.id, holdfast.Enqueued.REPLACED)
    many = await place.enqueue_many([greet.job("Mary"), greet.job("Rose")], unique_key="m")
    assert [handle.status for handle in many] == [holdfast.Enqueued.NEW, holdfast.Enqueued.KEPT]
    await place.commit()
    assert await names(db) == ["Joan", "Mary"]


async def test_a_rejected_key_says_who_holds_it(place: Caller, db: ThrowawayDatabase) -> None:
    """The driver's error is the cause; the caller's transaction is aborted and rolls back as usual."""
    await db.fetch("create table holdfast.orders (id integer)")
    first = await place.enqueue(greet.job("Ada"), unique_key="it's")
    await place.commit()
    await place.execute(f'insert into "{db.schema}".orders values (1)')  # noqa: S608 - a schema of our own
    with pytest.raises(holdfast.DuplicateJob) as caught:
        await place.enqueue(greet.job("Grace"), unique_key="it's", unique_policy="reject")
    assert (caught.value.unique_key, caught.value.job_id) == ("it's", first.id)
    assert caught.value.__cause__ is not None
    await place.rollback()
    assert await db.value("select count(*) from holdfast.orders") == 0
    await place.enqueue(greet.job("Joan"))
    await place.commit()
    assert await names(db) == ["Ada", "Joan"]


async def test_a_savepoint_saves_the_transaction_from_a_rejected_key(
    place: Caller, db: ThrowawayDatabase
) -> None:
    """With a savepoint around the enqueue the rest of the caller's transaction can still be committed."""
    await place.enqueue(greet.job("Ada"), unique_key="k")
    await place.execute("savepoint mine")
    with pytest.raises(holdfast.DuplicateJob):
        await place.enqueue(greet.job("Grace"), unique_key="k", unique_policy="reject")
    await place.execute("rollback to savepoint mine")
    await place.enqueue(greet.job("Joan"))
    await place.commit()
    assert await names(db) == ["Ada", "Joan"]


async def test_the_wake_up_comes_with_the_commit(place: Caller, db: ThrowawayDatabase) -> None:
    """A sleeping worker is told of the job once it can see it, and not of a job that was rolled back."""
    await db.fetch(
        "insert into holdfast.workers (name, host, pid, version, queues, kinds, slots, wakes_below, ttl, "
        "started_at, renewed_at, expires_at) "
        "values ('w', 'h', 1, '', '{mail}', '{greet}', 1, 10, '1 hour', now(), now(), now())"
    )
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(db.dsn)
    try:
        await listener.add_listener(db.schema, lambda *event: heard.put_nowait(str(event[-1])))
        await place.enqueue(greet.job("Ada"), unique_key="rolled back")
        await place.rollback()
        job = await place.enqueue(greet.job("Grace"))
        await db.fetch("select pg_notify('holdfast', 'before the commit')")
        await place.commit()
        async with asyncio.timeout(10):
            told = [await heard.get(), await heard.get()]
    finally:
        await listener.close()
    assert told == ["before the commit", f"job:{job.id}:5:mail"]


@pytest.mark.parametrize(
    "oddity",
    [
        "set local search_path = ''",
        "set local standard_conforming_strings = off",
        "set local datestyle = 'German, DMY'",
        "set local timezone = 'Asia/Kathmandu'",
        "set transaction isolation level serializable",
        "set local plpgsql.variable_conflict = 'use_column'",
        "set local bytea_output = 'escape'",
        "set local client_encoding = 'SQL_ASCII'",
        "set local client_encoding = 'LATIN1'",
    ],
)
async def test_the_settings_of_the_callers_session_do_not_matter(
    place: Caller, db: ThrowawayDatabase, oddity: str
) -> None:
    """Nothing that a session may be set to changes what is stored."""
    when = datetime(2031, 3, 4, 5, 6, tzinfo=UTC)
    await place.execute(oddity)
    await place.enqueue(greet.job("back\\slash 'n' all"), run_at=when, tags=["a\\b"], unique_key="k")
    await place.enqueue(greet.job("second"), concurrency_key="c", delay=3600)
    await place.commit()
    assert await names(db) == ["back\\slash 'n' all", "second"]
    assert await db.value("select run_at from holdfast.live_jobs order by job_id limit 1") == when
    assert await db.value("select tags from holdfast.jobs order by id limit 1") == ["a\\b"]


@pytest.mark.parametrize("library", ["psycopg", "psycopg async", "sqlalchemy connection", "django"])
async def test_letters_that_a_connection_cannot_send_are_refused_with_a_remedy(
    library: str, db: ThrowawayDatabase
) -> None:
    """Nothing has been sent then, so the transaction goes on."""
    async with caller(library, db) as place:
        await place.execute("set local client_encoding = 'LATIN1'")
        with pytest.raises(holdfast.InputInvalid, match="set its client_encoding to UTF8"):
            await place.enqueue(greet.job("日本"))
        await place.enqueue(greet.job("Zoë"))
        await place.commit()
    assert await names(db) == ["Zoë"]
