"""Jobs from plain SQL and from a trigger: every option, and clear words for every bad one."""

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from holdfast.errors import DuplicateJob, InputInvalid
from holdfast.store.database import own_errors
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import Scene

BOTH = pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
ASKED = """
    select kind, queue, args::text, priority, max_attempts, timeout, retry::text, unique_key, concurrency_key,
           tags, meta::text, parent_id, trace from holdfast.jobs where id = $1"""
STANDS = "select state, run_at, unique_key, concurrency_key from holdfast.live_jobs where job_id = $1"


async def test_a_kind_alone_is_enough(db: ThrowawayDatabase) -> None:
    """Everything else has the defaults of the client."""
    job_id = await db.value("select holdfast.enqueue('greet')")
    assert await db.fetch(ASKED, job_id) == [
        ("greet", "default", "{}", 5, 5, 300.0, None, None, None, [], "{}", None, None)
    ]
    assert await db.value("select state from holdfast.live_jobs") == "available"


@BOTH
async def test_every_option_is_stored(db: ThrowawayDatabase, version: int) -> None:
    """What plain SQL says is what the job is."""
    assert (await db.value("show server_version")).startswith(str(version))
    job_id = await db.value("""
        select holdfast.enqueue('greet', '{"to": "a@b.c"}', queue => 'mail', priority => 1,
            run_at => '2099-01-01 00:00+00', max_attempts => 3, timeout => '90 seconds',
            retry => '{"kind": "constant", "delay": 5}', unique_key => 'welcome:1',
            unique_policy => 'replace', concurrency_key => 'tenant:1', tags => '{a,"b, c"}',
            meta => '{"by": "psql"}', parent_id => 7, trace => 't')
    """)
    assert await db.fetch(ASKED, job_id) == [
        (
            *("greet", "mail", '{"to": "a@b.c"}', 1, 3, 90.0, '{"kind": "constant", "delay": 5}'),
            *("welcome:1", "tenant:1", ["a", "b, c"], '{"by": "psql"}', 7, "t"),
        )
    ]
    assert await db.fetch(STANDS, job_id) == [
        ("scheduled", datetime(2099, 1, 1, tzinfo=UTC), "welcome:1", "tenant:1")
    ]


async def test_ten_years_are_as_long_as_in_python(db: ThrowawayDatabase) -> None:
    """PostgreSQL counts a year as 360 days where it compares intervals; 3,650 is the client's own limit."""
    job_id = await db.value("select holdfast.enqueue('greet', timeout => '3650 days', delay => '3650 days')")
    assert await db.value("select timeout from holdfast.jobs where id = $1", job_id) == 3650 * 86_400


async def test_a_timeout_is_a_number(db: ThrowawayDatabase) -> None:
    """Not even an update by hand makes a job whose timeout compares with nothing."""
    job_id = await db.value("select holdfast.enqueue('greet')")
    with pytest.raises(asyncpg.CheckViolationError):
        await db.value("update holdfast.jobs set timeout = 'NaN' where id = $1", job_id)


async def test_a_delay_counts_from_the_databases_now(db: ThrowawayDatabase) -> None:
    """The job is scheduled for that moment."""
    await db.value("select holdfast.enqueue('greet', delay => '1 hour')")
    assert await db.value(
        "select state = 'scheduled' and run_at - j.created_at = interval '1 hour' "
        "from holdfast.live_jobs l join holdfast.jobs j on j.id = l.job_id"
    )


async def test_a_moment_one_hour_ahead_is_stored_as_it_is(scene: Scene) -> None:
    """No rounding and no zone gets between the moment asked for and the one kept."""
    moment = datetime(2098, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    await scene.enqueue(run_at=moment)
    assert await scene.db.value("select run_at from holdfast.live_jobs") == moment


async def test_a_moment_that_has_passed_makes_the_job_available(db: ThrowawayDatabase) -> None:
    """Nobody has to stage what is due already."""
    await db.value("select holdfast.enqueue('greet', run_at => '2001-01-01')")
    assert await db.value("select state from holdfast.live_jobs") == "available"


async def test_unique_policies_work_from_plain_sql(db: ThrowawayDatabase) -> None:
    """Keep and replace answer the living job; reject is an error of its own code."""
    first = await db.value("select holdfast.enqueue('greet', unique_key => 'u')")
    assert await db.value("select holdfast.enqueue('greet', unique_key => 'u')") == first
    replace = "select holdfast.enqueue('greet', '{\"n\": 2}', unique_key => 'u', unique_policy => 'replace')"
    assert await db.value(replace) == first
    assert await db.value("select args::text from holdfast.jobs") == '{"n": 2}'
    with (
        pytest.raises(DuplicateJob, match=f"job {first} already holds unique key 'u'"),
        own_errors(db.schema),
    ):
        await db.value("select holdfast.enqueue('greet', unique_key => 'u', unique_policy => 'reject')")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("null", "kind: give a name of 1 to 200 characters"),
        ("''", "kind: give a name"),
        ("repeat('k', 201)", "kind: give a name"),
        ("'k', queue => ''", "queue: give a name of 1 to 100 characters"),
        ("'k', queue => null", "queue: give a name"),
        ("'k', '[1]'", "args must be a JSON object, got a JSON array"),
        ("'k', null", "args must be a JSON object, got a JSON nothing"),
        ("'k', priority => 10", "priority is 10: give a whole number from 0 to 9"),
        ("'k', priority => -1", "priority is -1"),
        ("'k', priority => 70000", "priority is 70000"),
        ("'k', max_attempts => 0", "max_attempts is 0: give a whole number from 1 to 10000"),
        (
            "'k', timeout => '3651 days'",
            "timeout is 3651 days: it must lie between 1 millisecond and ten years",
        ),
        ("'k', timeout => '0'", "timeout is 00:00:00: it must lie between 1 millisecond and ten years"),
        ("'k', timeout => '-1 day'", "timeout is -1 days"),
        ("'k', delay => '-1 second'", "delay is -00:00:01: it must lie between 0 seconds and ten years"),
        ("'k', run_at => 'infinity'", "run_at is infinity: give a moment that comes"),
        ("'k', run_at => '-infinity'", "run_at is -infinity"),
        ("'k', run_at => '10000-01-01'", "it lies outside the years 1 to 9999 in UTC"),
        ("'k', run_at => '0044-03-15 BC'", "BC: it lies outside the years 1 to 9999"),
        ("'k', run_at => now(), delay => '1 second'", "delay: give either run_at or delay"),
        (
            "'k', retry => '{\"kind\": \"magic\"}'",
            "retry: give a JSON object whose kind is exponential, linear",
        ),
        ("'k', retry => '[]'", "retry: give a JSON object"),
        ("'k', unique_key => ''", "unique_key: give 1 to 500 characters"),
        ("'k', unique_key => repeat('u', 501)", "unique_key: give 1 to 500 characters"),
        ("'k', unique_policy => 'perhaps'", "unique_policy is perhaps: use keep, replace or reject"),
        ("'k', concurrency_key => ''", "concurrency_key: give 1 to 500 characters"),
        ("'k', tags => null", "tags: give an array without nulls"),
        ("'k', tags => array[null]", "tags: give an array without nulls"),
        ("'k', meta => '3'", "meta must be a JSON object"),
    ],
)
async def test_a_bad_option_is_refused_by_name(db: ThrowawayDatabase, call: str, complaint: str) -> None:
    """The error names the option and says what to give; nothing is enqueued."""
    with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
        await db.value(f"select holdfast.enqueue({call})")
    assert complaint in str(refused.value)
    assert await db.value("select count(*) from holdfast.jobs") == 0
    with pytest.raises(InputInvalid), own_errors(db.schema):
        raise refused.value


@pytest.fixture
async def orders(db: ThrowawayDatabase) -> Any:
    """A table of an application whose trigger enqueues a job for each row."""
    async with db.database.connection() as connection:
        await connection.execute(f"""
            create table "{db.schema}".orders (id integer primary key, buyer text);
            create function "{db.schema}".on_order() returns trigger language plpgsql as $$
            begin
                perform "{db.schema}".enqueue('ship', jsonb_build_object('order', new.id), queue => 'orders',
                                              concurrency_key => new.buyer);
                return null;
            end $$;
            create trigger ship after insert on "{db.schema}".orders
            for each row execute function "{db.schema}".on_order()""")
    return db


async def test_a_trigger_enqueues_with_the_row_that_fired_it(orders: ThrowawayDatabase) -> None:
    """Row and job commit together."""
    await orders.fetch("insert into holdfast.orders select n, 'buyer ' || n % 2 from generate_series(1, 4) n")
    assert await orders.fetch(
        "select kind, queue, args::text, concurrency_key from holdfast.jobs order by id"
    ) == [("ship", "orders", f'{{"order": {n}}}', f"buyer {n % 2}") for n in range(1, 5)]


async def test_a_rolled_back_row_leaves_no_job(orders: ThrowawayDatabase) -> None:
    """What did not happen is not worked on."""
    with pytest.raises(asyncpg.UniqueViolationError):
        await orders.fetch("insert into holdfast.orders values (1, 'a'), (1, 'a')")
    assert await orders.value("select count(*) from holdfast.jobs") == 0
    assert await orders.value("select count(*) from holdfast.live_jobs") == 0
