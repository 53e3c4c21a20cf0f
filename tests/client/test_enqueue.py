"""Enqueue one or many: order, atomicity, the two ways in, and unique keys under races."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.store import incoming
from holdfast.store.database import Connection
from holdfast.testing import ThrowawayDatabase

app = holdfast.App()


@app.job(queue="mail")
async def greet(name: str, extra: Any = None) -> None:
    """Nobody runs it here."""


async def names(db: ThrowawayDatabase) -> list[str]:
    """Who is to be greeted, in the order of ids."""
    return [row[0] for row in await db.fetch("select args ->> 'name' from holdfast.jobs order by id")]


@pytest.mark.parametrize("count", [0, 1, incoming.COPY_FROM - 1, incoming.COPY_FROM, 10_000])
@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_handles_answer_their_requests_in_order(
    client: holdfast.Client, db: ThrowawayDatabase, count: int, colour: str
) -> None:
    """The nth handle is the nth request's job, whichever way they went in, from any iterable."""
    requests = (greet.job(f"n{n}") for n in range(count))
    if colour == "sync":
        with holdfast.SyncClient(db.dsn, schema=db.schema) as own:
            handles = await asyncio.to_thread(own.enqueue_many, requests)
    else:
        handles = await client.enqueue_many(requests)
    rows = await db.fetch("select id, args ->> 'name' from holdfast.jobs")
    by_id = dict(rows)
    assert [by_id[handle.id] for handle in handles] == [f"n{n}" for n in range(count)]
    assert all(handle.status is holdfast.Enqueued.NEW for handle in handles)
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": 3600},
        {"run_at": datetime(2031, 1, 2, 3, 4, 5, 6, tzinfo=UTC)},
        {
            "queue": "other",
            "priority": 0,
            "max_attempts": 3,
            "timeout": 1.5,
            "retry": holdfast.Constant(timedelta(seconds=5)),
            "concurrency_key": "tick ' back \\ tab \t line \n quote \"",
            "tags": ["a", 'b"c', "d\\e", "null", "{x}", "\\N"],
            "meta": {"k": "\\N \t \n \\t"},
            "parent_id": 2**40,
            "trace": "00-abc-\\.-\t",
        },
    ],
    ids=["plain", "delayed", "at a time", "everything"],
)
async def test_copy_stores_what_the_function_stores(
    client: holdfast.Client, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch, colour: str, options: Any
) -> None:
    """Row by row and column by column both ways in are one; only ids and moments differ."""
    texts = ["plain", "back \\ slash", "tab \t and line \n end \r\n", "\\N", "\\.", "ünï 🐙", '{"a": 1}', ""]
    requests = [greet.job(text, [None, 1.5, {"k": text}]) for text in texts]
    # Some have other terms than their neighbours.
    requests[2:4] = [requests[2].with_options(priority=7, delay=60), requests[3].with_options(queue="third")]
    slow = await client.enqueue_many(requests, **options)
    monkeypatch.setattr(incoming, "COPY_FROM", 1)
    if colour == "sync":
        with holdfast.SyncClient(db.dsn, schema=db.schema) as own:
            fast = await asyncio.to_thread(own.enqueue_many, requests, **options)
    else:
        fast = await client.enqueue_many(requests, **options)
    assert await contents(db, slow) == await contents(db, fast)
    queue = options.get("queue", "mail")
    keyed = await db.value("select keyed from holdfast.queues where name = $1", queue)
    assert bool(keyed) is ("concurrency_key" in options)


@pytest.mark.parametrize("count", [10, 600])
@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_each_of_many_may_have_options_of_its_own(
    client: holdfast.Client, db: ThrowawayDatabase, count: int, colour: str
) -> None:
    """They come before those of the call, by either way in; what neither says is the kind's policy."""
    requests = [
        greet.job(f"n{n}").with_options(priority=n % 10, concurrency_key=f"k{n % 3}") for n in range(count)
    ]
    requests[1] = greet.job("n1").with_options(queue="own").with_options(priority=1)
    if colour == "sync":
        with holdfast.SyncClient(db.dsn, schema=db.schema) as own:
            handles = await asyncio.to_thread(own.enqueue_many, requests, priority=4, tags=["all"])
    else:
        handles = await client.enqueue_many(requests, priority=4, tags=["all"])
    found = await db.fetch(
        "select l.job_id, j.args ->> 'name', l.queue, l.priority::integer, l.concurrency_key, j.tags "
        "from holdfast.live_jobs l join holdfast.jobs j on j.id = l.job_id order by 1"
    )
    wanted: list[Any] = [(f"n{n}", "mail", n % 10, f"k{n % 3}", ["all"]) for n in range(count)]
    wanted[1] = ("n1", "own", 1, None, ["all"])
    assert found == [(handle.id, *one) for handle, one in zip(handles, wanted, strict=True)]
    assert await db.fetch("select name from holdfast.queues where keyed") == [("mail",)]


@pytest.mark.parametrize("count", [3, 600])
async def test_each_of_many_may_have_a_unique_key_of_its_own(
    client: holdfast.Client, db: ThrowawayDatabase, count: int
) -> None:
    """Those whose key is taken are kept, within the call as well; the others go in."""
    holder = await client.enqueue(greet.job("holder"), unique_key="key 1")
    requests = [greet.job(f"n{n}").with_options(unique_key=f"key {n}") for n in (*range(count), 0)]
    first, second, *others, last = await client.enqueue_many(requests)
    assert (first.status, second.status) == (holdfast.Enqueued.NEW, holdfast.Enqueued.KEPT)
    assert second.id == holder.id
    assert (last.id, last.status) == (first.id, holdfast.Enqueued.KEPT)
    assert {handle.status for handle in others} == {holdfast.Enqueued.NEW}
    assert await names(db) == ["holder", "n0", *(f"n{n}" for n in range(2, count))]


async def test_batches_that_share_unique_keys_in_another_order_do_not_deadlock(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Keys are taken in one order by everybody: each caller is answered, and each key is one job."""
    keys = [f"key {n}" for n in range(400)]
    calls = [keys if nth % 2 else keys[::-1] for nth in range(6)]
    answers = await asyncio.gather(
        *(
            client.enqueue_many([greet.job(key).with_options(unique_key=key) for key in call])
            for call in calls
        )
    )
    ids = [
        dict(zip(call, (h.id for h in handles), strict=True))
        for call, handles in zip(calls, answers, strict=True)
    ]
    assert all(one == ids[0] for one in ids)
    assert sum(h.status is holdfast.Enqueued.NEW for handles in answers for h in handles) == len(keys)
    assert len(await names(db)) == len(keys)


async def test_a_moment_of_its_own_takes_the_place_of_that_for_all(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A job has one moment: run_at and delay are one option here, unless a request has both."""
    moment = datetime(2031, 1, 2, tzinfo=UTC)
    late, soon = greet.job("late").with_options(run_at=moment), greet.job("soon").with_options(delay=0)
    await client.enqueue_many([late, greet.job("all")], delay=3600)
    await client.enqueue(soon, run_at=moment)
    due = dict(
        await db.fetch(
            "select j.args ->> 'name', l.run_at "
            "from holdfast.live_jobs l join holdfast.jobs j on j.id = l.job_id"
        )
    )
    assert due["late"] == moment
    assert due["soon"] < due["all"] < moment
    with pytest.raises(holdfast.OptionInvalid, match="either run_at or delay"):
        await client.enqueue(late.with_options(delay=1))


async def test_none_is_as_if_an_option_were_not_given(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """It neither asks for the kind's own priority nor takes the moment of the call away."""
    request = greet.job("a").with_options(priority=None, delay=None)  # type: ignore[arg-type]
    await client.enqueue(request, priority=1, run_at=datetime(2031, 1, 2, tzinfo=UTC))
    assert await db.fetch("select priority::integer, state from holdfast.live_jobs") == [(1, "scheduled")]


async def test_batches_that_ask_for_runners_in_another_order_do_not_deadlock(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Routes that nobody has used before are made in one order by everybody."""
    for turn in range(3):
        labels = [f"label {turn} {n}" for n in range(200)]
        calls = [labels if nth % 2 else labels[::-1] for nth in range(4)]
        await asyncio.gather(
            *(client.enqueue_many([greet.job(a).with_options(labels=[a]) for a in call]) for call in calls)
        )
    assert await db.value("select count(*) from holdfast.placements") == 3 * 4 * 200


@pytest.mark.parametrize("labels", [["gpu", None], [None, "gpu"], ["cpu", "gpu"], ["gpu", None, "gpu"]])
async def test_of_jobs_that_replace_each_other_the_last_ones_placement_counts(
    client: holdfast.Client, db: ThrowawayDatabase, labels: list[str | None]
) -> None:
    """Whoever asks for no runner is not left with the wishes of the one that it has replaced."""
    requests = [
        greet.job(str(label)).with_options(unique_key="k", labels=None if label is None else [label])  # type: ignore[arg-type]
        for label in labels
    ]
    await client.enqueue_many(requests, unique_policy="replace")
    placed = await db.fetch("select labels from holdfast.placements")
    routed = await db.value("select route_id is not null from holdfast.live_jobs")
    last = labels[-1]
    assert (placed, routed) == (([], False) if last is None else ([([last],)], True))


async def test_a_request_says_at_once_that_there_is_no_such_option() -> None:
    """What a value is worth is seen at the enqueue, as everywhere; the request itself stays as it was."""
    request, given = greet.job("a"), {"prio": 1}
    with pytest.raises(holdfast.OptionInvalid, match=r"prio is 1: there is no such option here; .*priority"):
        request.with_options(**given)  # type: ignore[arg-type]
    assert request.with_options(priority=1) != request == greet.job("a")


async def contents(db: ThrowawayDatabase, handles: list[holdfast.JobHandle]) -> list[Any]:
    """Everything stored of these jobs, in order, with times taken from their enqueue."""
    return await db.fetch(
        "select to_jsonb(j) - 'id' - 'created_at', to_jsonb(l) - 'job_id' - 'place' - 'run_at', "
        "case when l.run_at - j.created_at < interval '2 hours' then l.run_at - j.created_at end, "
        "case when l.run_at - j.created_at > interval '2 hours' then l.run_at end "
        "from holdfast.jobs j join holdfast.live_jobs l on l.job_id = j.id "
        "where j.id = any ($1::bigint[]) order by j.id",
        [handle.id for handle in handles],
    )


@pytest.mark.parametrize("count", [3, 600])
async def test_one_wrong_job_keeps_all_of_them_out(
    client: holdfast.Client, db: ThrowawayDatabase, count: int
) -> None:
    """A request that PostgreSQL refuses takes the whole call back, by either way in."""
    wrong = holdfast.JobRequest("k" * 201, "{}")
    with pytest.raises(holdfast.InputInvalid, match="PostgreSQL refused a value"):
        await client.enqueue_many([*(greet.job(f"n{n}") for n in range(count)), wrong])
    assert await names(db) == []
    with holdfast.SyncClient(db.dsn, schema=db.schema) as own, pytest.raises(holdfast.InputInvalid):
        await asyncio.to_thread(own.enqueue_many, [*(greet.job(f"n{n}") for n in range(count)), wrong])
    assert await names(db) == []


async def test_a_rejected_key_keeps_all_of_them_out(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Among many jobs the one whose key is taken takes the others back."""
    await client.enqueue(greet.job("holder"), unique_key="k")
    with pytest.raises(holdfast.DuplicateJob, match=r"job \d+ already holds unique key 'k'"):
        await client.enqueue_many([greet.job("a"), greet.job("b")], unique_key="k", unique_policy="reject")
    assert await names(db) == ["holder"]


async def test_very_many_jobs_under_one_key_are_one_job(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A unique key never takes the way of COPY: the first job is new, the others are that one."""
    handles = await client.enqueue_many([greet.job(f"n{n}") for n in range(600)], unique_key="k")
    assert [handle.status for handle in handles[:2]] == [holdfast.Enqueued.NEW, holdfast.Enqueued.KEPT]
    assert len({handle.id for handle in handles}) == 1
    assert await names(db) == ["n0"]


@pytest.fixture
async def rivals(db: ThrowawayDatabase) -> AsyncIterator[list[Connection]]:
    """Two sessions, each in a transaction."""
    connections = [await asyncpg.connect(db.dsn) for _ in range(2)]
    try:
        for connection in connections:
            await connection.execute("begin")
        yield connections
    finally:
        for connection in connections:
            connection.terminate()


async def blocked(db: ThrowawayDatabase, connection: Connection) -> bool:
    """True once the session of *connection* waits for another one."""
    pid = connection.get_server_pid()
    return bool(await db.value("select cardinality(pg_blocking_pids($1)) > 0", pid))


@pytest.mark.parametrize(
    ("policy", "end", "expected"),
    [
        ("keep", "commit", (holdfast.Enqueued.KEPT, ["first"])),
        ("keep", "rollback", (holdfast.Enqueued.NEW, ["second"])),
        ("replace", "commit", (holdfast.Enqueued.REPLACED, ["second"])),
        ("replace", "rollback", (holdfast.Enqueued.NEW, ["second"])),
        ("reject", "commit", (holdfast.DuplicateJob, ["first"])),
        ("reject", "rollback", (holdfast.Enqueued.NEW, ["second"])),
    ],
)
async def test_the_second_of_two_racing_sessions_waits_for_the_first(
    client: holdfast.Client,
    db: ThrowawayDatabase,
    rivals: Any,
    eventually: Any,
    policy: str,
    end: str,
    expected: Any,
) -> None:
    """Whoever comes second learns how the first transaction ended, and follows the policy."""
    first, second = rivals
    await client.enqueue(greet.job("first"), unique_key="k", connection=first)
    racing = asyncio.create_task(
        client.enqueue(greet.job("second"), unique_key="k", unique_policy=policy, connection=second)
    )
    await eventually(lambda: blocked(db, second))
    assert not racing.done()
    await first.execute(end)
    outcome, left = expected
    if outcome is holdfast.DuplicateJob:
        with pytest.raises(holdfast.DuplicateJob):
            await racing
        await second.execute("rollback")
    else:
        assert (await racing).status is outcome
        await second.execute("commit")
    assert await names(db) == left


async def test_two_keys_taken_crosswise_end_as_a_deadlock_that_nobody_hangs_in(
    client: holdfast.Client, db: ThrowawayDatabase, rivals: Any
) -> None:
    """PostgreSQL ends one of the two; the other gets both keys."""
    first, second = rivals
    await client.enqueue(greet.job("a"), unique_key="a", connection=first)
    await client.enqueue(greet.job("b"), unique_key="b", connection=second)

    async def take(key: str, connection: Any) -> str:
        try:
            await client.enqueue(greet.job(key), unique_key=key, connection=connection)
        except asyncpg.DeadlockDetectedError:
            await connection.execute("rollback")
            return "deadlock"
        await connection.execute("commit")
        return "done"

    async with asyncio.timeout(30):
        ends = await asyncio.gather(take("b", first), take("a", second))
    assert sorted(ends) == ["deadlock", "done"]
    assert len(await names(db)) == 2


@pytest.mark.parametrize("policy", ["keep", "replace", "reject"])
async def test_of_many_at_once_one_wins(client: holdfast.Client, db: ThrowawayDatabase, policy: str) -> None:
    """Twenty enqueues under one key, five at a time, leave one job whose handle all winners share."""

    async def enqueue(number: int) -> Any:
        try:
            return await client.enqueue(greet.job(f"n{number}"), unique_key="k", unique_policy=policy)
        except holdfast.DuplicateJob as duplicate:
            return duplicate

    answers = await asyncio.gather(*(enqueue(n) for n in range(20)))
    [job_id] = [row[0] for row in await db.fetch("select job_id from holdfast.live_jobs")]
    assert await db.value("select count(*) from holdfast.jobs") == 1
    if policy == "reject":
        losers = [answer for answer in answers if isinstance(answer, holdfast.DuplicateJob)]
        assert (len(losers), {loser.job_id for loser in losers}) == (19, {job_id})
    else:
        assert {answer.id for answer in answers} == {job_id}
        assert [answer.status for answer in answers].count(holdfast.Enqueued.NEW) == 1


async def test_an_unopened_client_says_so(db: ThrowawayDatabase) -> None:
    """The async client connects in a loop of its own choosing: it has to be opened."""
    client = holdfast.Client(db.dsn, schema=db.schema)
    with pytest.raises(holdfast.DatabaseUnavailable, match=r"call its open\(\) first"):
        await client.enqueue(greet.job("Ada"))
    connection = await asyncpg.connect(db.dsn)
    try:
        await client.enqueue(greet.job("Ada"), connection=connection)
    finally:
        await connection.close()
    assert await names(db) == ["Ada"]


async def test_wait_for_a_job_that_ends_and_one_that_does_not(client: holdfast.Client, work: Any) -> None:
    """The result comes back, patience runs out in time, and an unknown id is named."""
    own = holdfast.App()

    @own.job
    async def half(n: int) -> float:
        return n / 2

    await work(own)
    done = await client.enqueue(half.job(5))
    assert await client.wait(done.id) == 2.5
    held = await client.enqueue(half.job(1), delay=3600)
    with pytest.raises(holdfast.WaitTimeout, match=r"within 0\.1 s, it is still scheduled$"):
        await client.wait(held.id, timeout=0.1)
    with pytest.raises(holdfast.WaitTimeout):
        await client.wait(held.id, timeout=0)
    with pytest.raises(holdfast.JobNotFound):
        await client.wait(held.id + 1000)
    with pytest.raises(holdfast.OptionInvalid, match="timeout is -1"):
        await client.wait(held.id, timeout=-1)


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_many_of_one_request_says_what_is_wrong(
    client: holdfast.Client, db: ThrowawayDatabase, colour: str
) -> None:
    """A request that stands alone is no list of requests, and the error says what to write."""
    single: Any = greet.job("alone")
    wanted = r"not one JobRequest: write \[request\], or call enqueue"
    if colour == "async":
        with pytest.raises(holdfast.InputInvalid, match=wanted):
            await client.enqueue_many(single)
    else:
        own = holdfast.SyncClient(db.dsn, schema=db.schema)
        with own, pytest.raises(holdfast.InputInvalid, match=wanted):
            own.enqueue_many(single)
    assert await names(db) == []
