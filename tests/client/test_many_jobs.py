"""Listings with filters, and acts on many jobs."""

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.job_operator import BATCH
from holdfast.client.job_verbs import Swept
from holdfast.client.operator import Operator
from holdfast.errors import OptionInvalid
from holdfast.model.job import JobState
from holdfast.model.selection import JobFilter
from holdfast.store import overview
from holdfast.store.sqlfile import rendered
from holdfast.testing import Clock, ThrowawayDatabase


def requests(count: int, kind: str = "echo", args: str = "{}") -> list[JobRequest]:
    """That many equal requests."""
    return [JobRequest(kind, args)] * count


async def put(client: holdfast.Client, count: int = 1, kind: str = "echo", **options: Any) -> list[int]:
    """Enqueue jobs; answers their ids."""
    return [handle.id for handle in await client.enqueue_many(requests(count, kind), **options)]


async def found(operator: Operator, **chosen: Any) -> list[int]:
    """The ids that a filter finds, newest first."""
    ids = [job.id for job in await operator.jobs.find(JobFilter(**chosen))]
    assert len(ids) == await operator.jobs.count(JobFilter(**chosen))
    return ids


async def test_a_listing_goes_on_where_the_last_page_ended(
    operator: Operator, client: holdfast.Client
) -> None:
    """Pages follow each other by the last id, newest first, without gaps; live and ended jobs are mixed."""
    ids = await put(client, 7)
    await operator.jobs.cancel(ids[3])
    pages, before = [], None
    while page := await operator.jobs.find(limit=3, before=before):
        pages.append([job.id for job in page])
        before = page[-1].id
    assert pages == [ids[6:3:-1], ids[3:0:-1], ids[0:1]]


async def test_each_filter_finds_its_jobs(operator: Operator, client: holdfast.Client) -> None:
    """State, kind, queue, tags and text choose, alone and together."""
    plain = await put(client)
    tagged = await put(client, kind="mail", queue="post", tags=["eu", "big"])
    later = await put(client, delay=timedelta(days=1), tags=["eu"])
    (gone,) = await put(client, kind="mail")
    secret = (await client.enqueue(JobRequest("echo", '{"who": "Zoë%_"}'))).id
    await operator.jobs.cancel(gone, "No longer wanted")
    assert await found(operator) == [secret, gone, *later, *tagged, *plain]
    assert await found(operator, states=(JobState.SCHEDULED, JobState.CANCELLED)) == [gone, *later]
    assert await found(operator, kind="mail") == [gone, *tagged]
    assert await found(operator, kind="mail", states=(JobState.AVAILABLE,)) == tagged
    assert await found(operator, queue="post") == tagged
    assert await found(operator, tags=("eu",)) == [*later, *tagged]
    assert await found(operator, tags=("eu", "big")) == tagged
    assert await found(operator, text="zoË%_") == [secret]
    assert await found(operator, text="no longer") == [gone]
    assert await found(operator, text="nowhere") == []


async def test_jobs_are_found_by_their_keys(operator: Operator, client: holdfast.Client) -> None:
    """Those that live and those that have ended."""
    await put(client)
    (gone,) = await put(client, unique_key="u", concurrency_key="c")
    await operator.jobs.cancel(gone)
    (live,) = await put(client, unique_key="u")
    assert await found(operator, unique_key="u") == [live, gone]
    assert await found(operator, concurrency_key="c") == [gone]
    assert await found(operator, unique_key="u", concurrency_key="c") == [gone]
    assert await found(operator, unique_key="c") == []


async def test_jobs_are_found_by_when_they_were_enqueued_and_ended(
    operator: Operator, client: holdfast.Client, clock: Clock
) -> None:
    """The first moment of a span belongs to it, the last does not; only ended jobs have an end."""
    start = await clock.now()
    (early,) = await put(client)
    await clock.advance(timedelta(hours=1))
    (late,) = await put(client)
    await operator.jobs.cancel(early)
    noon, end = start + timedelta(minutes=30), start + timedelta(hours=2)
    assert await found(operator, until=noon) == [early]
    assert await found(operator, since=noon) == [late]
    assert await found(operator, since=start + timedelta(hours=1), until=end) == [late]
    assert await found(operator, until=start + timedelta(hours=1)) == [early]
    assert await found(operator, ended_since=noon) == [early]
    assert await found(operator, ended_until=noon) == []


async def test_jobs_are_found_by_their_worker(operator: Operator, client: holdfast.Client, work: Any) -> None:
    """A worker's jobs are those that it holds and those that it has ended."""
    app = holdfast.App()

    @app.job
    async def echo() -> None: ...

    process = await work(app)
    (done,) = await put(client)
    await client.wait(done, timeout=10)
    await put(client, delay=timedelta(days=1))
    assert await found(operator, worker_id=process.worker.worker_id) == [done]
    assert await found(operator, worker_id=process.worker.worker_id + 1) == []


async def test_a_listing_shows_neither_arguments_nor_errors(
    operator: Operator, client: holdfast.Client
) -> None:
    """What may be secret or large is left to the view of one job."""
    await put(client)
    (job,) = await operator.jobs.find()
    assert {"args", "meta", "result", "error"}.isdisjoint(job.__slots__)


async def test_many_jobs_are_cancelled_in_batches(
    operator: Operator, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Only what fits is cancelled, progress is told batch by batch, and each job is audited."""
    await put(client, BATCH * 2 + 5)
    (other,) = await put(client, kind="mail")
    told: list[Swept] = []
    swept = await operator.jobs.cancel_many(JobFilter(kind="echo"), "cleaning up", progress=told.append)
    assert swept == Swept(changed=BATCH * 2 + 5)
    assert [one.seen for one in told] == [BATCH, BATCH * 2, BATCH * 2 + 5]
    assert await found(operator, states=(JobState.AVAILABLE,)) == [other]
    acts = await db.fetch("select distinct actor, action, reason from holdfast.audit_log")
    assert acts == [("alice", "job.cancel", "cleaning up")]
    assert await db.value("select count(distinct subject) from holdfast.audit_log") == BATCH * 2 + 5


async def test_many_retries_take_failed_jobs_unless_told_otherwise(
    operator: Operator, client: holdfast.Client
) -> None:
    """Cancelled and scheduled jobs are left alone until their state is named."""
    failed, cancelled = await put(client, 2), await put(client, 2)
    later = await put(client, 2, delay=timedelta(days=1))
    for job_id in failed:
        await operator.jobs.discard(job_id)
    for job_id in cancelled:
        await operator.jobs.cancel(job_id)
    assert await operator.jobs.retry_many(JobFilter()) == Swept(changed=2)
    assert sorted(await found(operator, states=(JobState.AVAILABLE,))) == failed
    asked = JobFilter(states=(JobState.CANCELLED, JobState.SCHEDULED))
    assert await operator.jobs.retry_many(asked) == Swept(changed=4)
    assert sorted(await found(operator, states=(JobState.AVAILABLE,))) == [*failed, *cancelled, *later]


async def test_of_many_retries_with_one_unique_key_one_wins(
    operator: Operator, client: holdfast.Client
) -> None:
    """The others stay failed and are counted as passed over."""
    ids = []
    for _ in range(3):
        ids += await put(client, unique_key="one")
        await operator.jobs.discard(ids[-1])
    assert await operator.jobs.retry_many(JobFilter()) == Swept(changed=1, passed_over=2)
    assert len(await found(operator, states=(JobState.FAILED,))) == 2


async def test_children_that_follow_their_parents_are_not_counted(
    operator: Operator, client: holdfast.Client, work: Any, eventually: Any
) -> None:
    """Whoever cancels three runs reads of three, however many children they have."""
    app = holdfast.App()

    @app.job(queue="parts")
    async def pack(n: int) -> int:
        return n

    @app.workflow
    async def order(run: holdfast.Run) -> list[Any]:
        return await run.children([pack.job(n) for n in range(5)])

    await work(app, queues=("default",))
    await client.enqueue_many([order.job() for _ in range(3)])

    async def all_asleep() -> bool:
        return await operator.jobs.count(JobFilter(kind="order", states=(JobState.WAITING,))) == 3

    await eventually(all_asleep)
    assert await operator.jobs.cancel_many(JobFilter(kind="order")) == Swept(changed=3)
    assert len(await found(operator, kind="pack", states=(JobState.CANCELLED,))) == 15


async def test_many_discards_leave_what_is_held(operator: Operator, client: holdfast.Client) -> None:
    """Scheduled and available jobs end as failed."""
    await put(client, 2)
    await put(client, delay=timedelta(days=1))
    assert await operator.jobs.discard_many(JobFilter()) == Swept(changed=3)
    assert {job.reason for job in await operator.jobs.find()} == {"discarded by alice"}


async def test_an_act_on_a_state_that_forbids_it_is_refused(operator: Operator) -> None:
    """The refusal names the states that are allowed, and nothing is done."""
    with pytest.raises(OptionInvalid, match="only these can be retried: scheduled, failed, cancelled"):
        await operator.jobs.retry_many(JobFilter(states=(JobState.COMPLETED,)))
    with pytest.raises(OptionInvalid, match="only these can be discarded: scheduled, available, waiting"):
        await operator.jobs.discard_many(JobFilter(states=(JobState.RUNNING,)))


@pytest.mark.parametrize("states", [(), ("failed",), ("running",), ("completed",), ("available",)])
async def test_a_listing_among_many_reads_no_table_from_end_to_end(
    states: tuple[str, ...], db: ThrowawayDatabase
) -> None:
    """However many jobs there are, a page is found by index."""
    await db.fetch(
        "insert into holdfast.jobs (kind, queue) select 'echo', 'default' from generate_series(1, 40000)"
    )
    await db.fetch(
        "insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at) "
        "select id, queue, kind, priority, 'available', holdfast.now() from holdfast.jobs where id <= 10000"
    )
    await db.fetch(
        "insert into holdfast.finished_jobs (job_id, queue, kind, outcome, attempt, failures, finished_at) "
        "select id, queue, kind, case when id <= 20000 then 'failed' else 'completed' end, 1, 0, "
        "holdfast.now() from holdfast.jobs where id > 10000"
    )
    await db.fetch("analyze")
    plan = await explained(db, JobFilter(states=tuple(JobState(state) for state in states)))
    assert "Seq Scan" not in plan
    assert "Index" in plan


async def explained(db: ThrowawayDatabase, chosen: JobFilter) -> str:
    """The plan of a listing, planned as the operator has it planned."""
    statement = overview.list_jobs(chosen, before=None, limit=50)
    async with db.database.transaction() as connection:
        await db.database.run(overview.plan_freely("10s"), connection)
        rows = await connection.fetch("explain " + rendered(statement.text, db.schema), *statement.parameters)
    return "\n".join(row[0] for row in rows)
