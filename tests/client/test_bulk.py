"""What goes in by COPY is what was asked, letter by letter."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.app.handler import JobRequest, Policy
from holdfast.app.options import Options, resolved_each
from holdfast.client import asynchronous
from holdfast.errors import InputInvalid
from holdfast.model.job import NewJob
from holdfast.store import binary_copy, bulk, incoming, jobs
from holdfast.store.bulk import CHUNK, Load
from holdfast.store.database import DatabaseConfig
from holdfast.store.incoming import COPY_FROM, Incoming
from holdfast.store.jobs import Reserved
from holdfast.testing import ThrowawayDatabase

ROWS = (
    "select kind, queue, args, priority, max_attempts, timeout, retry, concurrency_key, tags, meta,"
    " parent_id, trace, (select array[l.state, l.kind, l.queue, l.concurrency_key, l.priority::text,"
    " l.run_at::text] from holdfast.live_jobs l where l.job_id = j.id)"
    " from holdfast.jobs j order by id"
)
AWKWARD = "a\tb\nc\rd\\e\\N\\.f\"g'h\u00a0ü🐚{},\x7f"
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60)


def asked(args: list[Any], **policy: Any) -> list[JobRequest]:
    """Requests of one kind with these values."""
    return [JobRequest("ec\tho", msgspec.json.encode({"v": one}).decode(), Policy(**policy)) for one in args]


@pytest.mark.parametrize("year", [1999, 2099])
async def test_awkward_values_arrive_unchanged_either_way(
    client: holdfast.Client, db: ThrowawayDatabase, year: int
) -> None:
    """COPY reads some letters as something else: each row equals the one that a plain statement made."""
    options: Any = {
        "queue": AWKWARD,
        "tags": [AWKWARD, "NULL", "", "x"][:2],
        "meta": {AWKWARD: AWKWARD},
        "trace": AWKWARD,
        "concurrency_key": AWKWARD,
        "priority": 3,
        "max_attempts": 9_999,
        "timeout": 0.1,
        "retry": holdfast.Constant(timedelta(seconds=2.5)),
        "parent_id": 2**62,
        "run_at": datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-5))),
    }
    await client.enqueue_many(asked([AWKWARD]), **options)
    await client.enqueue_many(asked([AWKWARD] * COPY_FROM), **options)
    rows = await db.fetch(ROWS)
    assert len(rows) == COPY_FROM + 1
    assert all(row == rows[0] for row in rows)


async def test_rows_are_cut_into_messages_that_the_server_takes(
    client: holdfast.Client, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the jobs, no message of a COPY grows to what the server would refuse."""
    monkeypatch.setattr(binary_copy, "LARGEST_MESSAGE", 1000)
    sent = [f"{n} {'x' * n}" for n in range(COPY_FROM)]
    await client.enqueue_many(asked(sent))
    rows = await db.fetch("select args ->> 'v' as v from holdfast.jobs order by id")
    assert [row[0] for row in rows] == sent
    reserved = Reserved(list(range(COPY_FROM)), datetime.now(UTC))
    jobs = list(resolved_each(asked(sent)))
    for table in Load(Incoming(jobs)).tables(jobs, reserved):
        messages = [len(message) for message in table.chunks]
        assert max(messages) <= 1000 < sum(messages)


async def test_jobs_that_are_all_different_share_their_messages() -> None:
    """A message is a call of the system: one for each job costs more than all else that an enqueue does."""
    count = 20 * COPY_FROM
    wishes = (one.with_options(concurrency_key=f"key {n}") for n, one in enumerate(asked([""] * count)))
    jobs = list(resolved_each(wishes))
    for table in Load(Incoming(jobs)).tables(jobs, Reserved(list(range(count)), datetime.now(UTC))):
        *full, last = (len(message) for message in table.chunks)
        assert full
        assert min(full) >= binary_copy.SMALLEST_MESSAGE
        assert last < 2 * binary_copy.SMALLEST_MESSAGE


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(texts, min_size=1, max_size=20))
async def test_any_text_arrives_unchanged(
    client: holdfast.Client, db: ThrowawayDatabase, values: list[str]
) -> None:
    """Whatever the letters of the arguments, they are read back as they were sent, each under its own id."""
    sent = (values * COPY_FROM)[:COPY_FROM]
    handles = await client.enqueue_many(asked(sent))
    rows = await db.fetch(
        "select id, args ->> 'v' from holdfast.jobs where id = any ($1)", [one.id for one in handles]
    )
    assert dict(rows) == {handle.id: text for handle, text in zip(handles, sent, strict=True)}


async def test_jobs_of_many_kinds_keep_their_places(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Kinds and policies that take turns, and more than one chunk: each handle belongs to its request."""
    requests = [
        JobRequest(f"kind {n % 3}", f'{{"n": {n}}}', Policy(queue=f"q{n % 2}", max_attempts=1 + n % 4))
        for n in range(2 * CHUNK + 1)
    ]
    handles = await client.enqueue_many(requests)
    rows = await db.fetch("select id, kind, queue, max_attempts, (args ->> 'n')::integer from holdfast.jobs")
    found = {row[0]: row[1:] for row in rows}
    for n, (handle, request) in enumerate(zip(handles, requests, strict=True)):
        assert found[handle.id] == (request.kind, request.policy.queue, request.policy.max_attempts, n)
    for of_a_line in handles[::2], handles[1::2]:
        assert list(of_a_line) == sorted(of_a_line, key=attrgetter("id"))


async def test_jobs_of_a_line_lie_together(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A claim takes hundreds of one priority: where others lie between them it reads so many pages more.

    So do its indexes, whose order is that of the ids.
    """
    requests = [JobRequest("kind", f'{{"n": {n}}}', Policy(priority=n % 10)) for n in range(2 * CHUNK)]
    handles = await client.enqueue_many(requests)
    for table, key in ("jobs", "id"), ("live_jobs", "job_id"):
        rows = await db.fetch(f"select {key}, priority from holdfast.{table} order by ctid")  # noqa: S608 - our tables
        assert [len(list(line)) for _, line in groupby(rows, itemgetter(1))] == [CHUNK // 10] * 20
        assert rows == sorted(rows)
    for priority in range(10):
        assert handles[priority::10] == sorted(handles[priority::10], key=attrgetter("id"))


@pytest.mark.parametrize("args", ['{"v": "\ud800"}', '{"v": "\\u0000"}', "{nonsense", '{"v": "\x00"}'])
async def test_arguments_that_cannot_be_stored_put_nothing_in(
    client: holdfast.Client, db: ThrowawayDatabase, args: str
) -> None:
    """Made by hand, they were checked by nobody: they are refused, and no job of the batch exists."""
    with pytest.raises(InputInvalid):
        await client.enqueue_many([*asked(["x"] * COPY_FROM), JobRequest("echo", args)])
    assert await db.value("select count(*) from holdfast.jobs") == 0
    assert (await client.enqueue(asked(["x"])[0])).id > 0


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "BLOCK", 700)
    monkeypatch.setattr(incoming, "READ_BETWEEN", 300)


def given_one_by_one(count: int, last: BaseException | None = None) -> Iterator[JobRequest]:
    """Requests that are made when they are asked for; *last* is raised behind them."""
    for n in range(count):
        yield JobRequest("echo", f'{{"n": {n}}}')
    if last is not None:
        raise last


NUMBERED = "select id, (args ->> 'n')::integer from holdfast.jobs order by id"


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("count", [0, 1, COPY_FROM - 1, COPY_FROM, 700, 1400, 2 * CHUNK + 1])
async def test_what_comes_one_by_one_arrives_in_order(call: Any, db: ThrowawayDatabase, count: int) -> None:
    """However many blocks a generator fills, each handle belongs to its request, and all are available."""
    handles = await call("enqueue_many", given_one_by_one(count))
    assert await db.fetch(NUMBERED) == [(one.id, n) for n, one in enumerate(handles)]
    assert await db.value("select count(*) from holdfast.live_jobs where state = 'available'") == count


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("kind", [TimeoutError, OSError, ValueError, InputInvalid])
@pytest.mark.parametrize("count", [0, COPY_FROM, 2000])
async def test_what_a_generator_raises_is_raised_and_nothing_goes_in(
    call: Any, db: ThrowawayDatabase, count: int, kind: type[Exception]
) -> None:
    """It is the caller's own error, whatever a driver might take it for; the client serves on."""
    with pytest.raises(kind) as raised:
        await call("enqueue_many", given_one_by_one(count, kind("mine")))
    assert (type(raised.value), str(raised.value)) == (kind, "mine")
    assert await db.value("select count(*) from holdfast.jobs") == 0
    assert len(await call("enqueue_many", given_one_by_one(COPY_FROM))) == COPY_FROM


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("place", [0, COPY_FROM, 1500])
async def test_a_unique_key_among_many_takes_the_slower_way(
    call: Any, db: ThrowawayDatabase, place: int
) -> None:
    """Wherever it comes, all go in, in order, and a second one under the key is kept out as ever."""

    def keyed() -> Iterator[JobRequest]:
        for n, one in enumerate(given_one_by_one(2000)):
            yield one.with_options(unique_key="k", unique_policy="keep") if n == place else one

    first = await call("enqueue_many", keyed())
    assert await db.fetch(NUMBERED) == [(one.id, n) for n, one in enumerate(first)]
    second = await call("enqueue_many", keyed())
    assert second[place].id == first[place].id
    assert await db.value("select count(*) from holdfast.jobs") == 3999


@pytest.mark.parametrize(("patience", "open_at_the_end"), [(60.0, 1), (0.0, 0)])
async def test_a_slow_generator_is_read_to_its_end_without_a_transaction(
    call: Any,
    db: ThrowawayDatabase,
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    open_at_the_end: int,
) -> None:
    """A quick one is read beside the COPY; one that would keep its transaction open is read first."""
    monkeypatch.setattr(incoming, "LONGEST_READ", patience)
    # While it takes rows in, a session is active.
    open_copies = "select count(*) from pg_stat_activity where state = 'active' and query ilike %s"
    seen = list[int]()

    def watching() -> Iterator[JobRequest]:
        yield from given_one_by_one(5000)
        with psycopg.connect(db.dsn) as session:
            seen.extend(*session.execute(open_copies, [f"copy%{db.schema}%"]))

    handles = await call("enqueue_many", watching())
    assert seen == [open_at_the_end]
    assert await db.fetch(NUMBERED) == [(one.id, n) for n, one in enumerate(handles)]


async def test_a_generator_that_outlasts_the_drivers_patience_loses_nothing(
    dsn: str, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes a generator that stalls beside a COPY for a database that does."""

    def stalling() -> Iterator[JobRequest]:
        yield from given_one_by_one(5000)
        time.sleep(4.0)

    monkeypatch.setattr(asynchronous, "DatabaseConfig", partial(DatabaseConfig, command_timeout=3.0))
    async with holdfast.Client(dsn, schema=db.schema) as client:
        handles = await client.enqueue_many(stalling())
    assert await db.fetch(NUMBERED) == [(one.id, n) for n, one in enumerate(handles)]


def test_a_block_ends_where_its_jobs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one COPY takes in has a bound of letters too, so that it ends in time; one job always goes in."""
    monkeypatch.setattr(incoming, "BLOCK_CHARACTERS", 100)
    sizes = [40, 40, 40, 99, 1, 1, 500, 1]
    jobs = Incoming([job for size in sizes for job in resolved_each([JobRequest("echo", "x" * size)])])
    jobs.read()
    assert [[len(job.args) for job in block] for block in jobs.blocks()] == [
        [40, 40],
        [40],
        [99, 1],
        [1],
        [500],
        [1],
    ]


def test_a_slow_generator_is_found_out_by_its_first_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A COPY does not wait for two thousand jobs of which each takes long to make."""
    monkeypatch.setattr(incoming, "LONGEST_READ", -1.0)
    made = list[int]()

    def slow() -> Iterator[NewJob]:
        for n, job in enumerate(resolved_each(given_one_by_one(2000))):
            made.append(n)
            yield job

    jobs = Incoming(slow())
    jobs.read(COPY_FROM)
    jobs.read_on()
    assert jobs.is_slow
    assert len(made) == COPY_FROM + 1


async def test_a_statement_of_more_than_the_server_takes_is_refused_by_name(
    client: holdfast.Client, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs with keys go in by one statement; on a message of a gigabyte the server just hangs up."""
    monkeypatch.setattr(jobs, "MOST_BYTES", 10_000)
    requests = [one.with_options(unique_key=one.args) for one in asked(["ü" * 10] * 499)]
    with pytest.raises(InputInvalid) as raised:
        await client.enqueue_many(requests)
    assert str(raised.value) == (
        "the arguments and meta of 499 jobs come to 14,970 bytes, where one statement takes 10,000: "
        "enqueue fewer of them at once"
    )
    assert await db.value("select count(*) from holdfast.jobs") == 0


def test_a_job_that_was_due_later_when_it_went_in_is_staged() -> None:
    """A later block's time may be past it, and yet it lies there as scheduled: the stager is told of it."""
    jobs = list(resolved_each(given_one_by_one(2), Options(delay=0.5)))
    begun, work = datetime.now(UTC), Load(Incoming(jobs))
    for n, job in enumerate(jobs):
        for table in work.tables([job], Reserved([n], begun + timedelta(seconds=n))):
            assert b"".join(table.chunks)
    assert work.after()[-1].parameters == ([], begun + timedelta(seconds=0.5), 0)


@pytest.mark.usefixtures("_small_blocks")
async def test_a_list_needs_no_reading(db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, its blocks are there: whoever has a list need not begin anew."""
    monkeypatch.setattr(incoming, "LONGEST_READ", -1.0)
    jobs = list(resolved_each(given_one_by_one(1500)))
    whole = Incoming(jobs)
    assert whole.read() == jobs
    assert [len(block) for block in whole.blocks()] == [700, 700, 100]
    async with db.database.transaction() as own:
        handles = await bulk.put_jobs(own, db.schema, jobs)
    assert await db.fetch(NUMBERED) == [(one.id, n) for n, one in enumerate(handles)]


async def test_a_list_is_checked_as_a_whole_before_anything_is_sent(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Its last request is wrong: the database hears nothing, not even that ids are wanted."""
    wrong = JobRequest("echo", "{}").with_options(priority=77)
    with pytest.raises(InputInvalid):
        await client.enqueue_many([*given_one_by_one(2000), wrong])
    assert await db.value("select is_called from holdfast.jobs_id_seq") is False


def test_the_sync_client_writes_the_same_rows(dsn: str, db: ThrowawayDatabase) -> None:
    """psycopg sends the same lines."""
    with holdfast.SyncClient(dsn, schema=db.schema) as client:
        handles = client.enqueue_many(asked([AWKWARD] * COPY_FROM), queue=AWKWARD)
        assert client.job(handles[-1].id).args == {"v": AWKWARD}
        assert client.job(handles[0].id).queue == AWKWARD
