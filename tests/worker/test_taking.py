"""How a worker takes jobs: at once, in order, and all of them."""

import asyncio
import time
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import claimer

# So rare that a test which needs a poll would time out.
NEVER = 60.0

HELD = "select job_id from holdfast.live_jobs where worker_id is not null order by job_id"


async def test_a_freed_slot_claims_at_once(client: holdfast.Client, work: Any) -> None:
    """Many more jobs than slots are done long before the next poll."""
    app = holdfast.App()

    @app.job
    async def step(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    await work(app, slots=2, poll=NEVER, prefetch=0)
    handles = await client.enqueue_many([step.job(n) for n in range(25)])
    assert [await client.wait(handle.id, timeout=20) for handle in handles] == list(range(25))


async def test_slots_that_never_wait_let_the_loop_turn_together(client: holdfast.Client, work: Any) -> None:
    """Handlers of half a millisecond keep the loop once in a turn for each slot, and not row after row."""
    app, slots = holdfast.App(), 20
    rows, done = [0], asyncio.Event()

    @app.job
    async def hog(n: int) -> None:
        time.sleep(0.0005)  # noqa: ASYNC251 - to keep the loop is the point
        rows[-1] += 1
        if n == 0:
            done.set()

    def turn() -> None:
        rows.append(0)
        if not done.is_set():
            asyncio.get_running_loop().call_soon(turn)

    await client.enqueue_many([hog.job(n) for n in range(1, 1000)])
    await client.enqueue(hog.job(0), priority=9)
    turn()
    await work(app, slots=slots, poll=NEVER)
    async with asyncio.timeout(30):
        await done.wait()
    assert sum(rows) == 1000
    assert max(rows) <= 2 * slots


async def test_one_notification_drains_the_queue(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Jobs that became available without a word of their own are taken along."""
    app = holdfast.App()

    @app.job
    async def step() -> None:
        await asyncio.sleep(0)

    await db.fetch("insert into holdfast.queues (name) values ('default') on conflict do nothing")
    await work(app, slots=2, poll=NEVER)
    await eventually(lambda: db.value("select true from holdfast.workers where asleep"))
    # Straight into the tables, past every notification.
    await db.fetch(
        "with asked as (insert into holdfast.jobs (kind, queue)"
        " select 'step', 'default' from generate_series(1, 20) returning id)"
        " insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at)"
        " select id, 'default', 'step', 5, 'available', holdfast.now() from asked"
    )
    last = await client.enqueue(step.job(), priority=9)
    await client.wait(last.id, timeout=20)
    await eventually(lambda: db.value("select count(*) = 21 from holdfast.finished_jobs"))


async def test_what_is_queued_before_the_start_is_taken_at_the_start(
    client: holdfast.Client, work: Any
) -> None:
    """No notification comes any more for these; the first look finds them."""
    app = holdfast.App()

    @app.job
    async def step() -> str:
        return "done"

    handle = await client.enqueue(step.job())
    await work(app, poll=NEVER)
    assert await client.wait(handle.id, timeout=20) == "done"


async def test_priority_is_strict_and_age_decides_among_equals(client: holdfast.Client, work: Any) -> None:
    """With one slot and no buffer the jobs run exactly by priority, then oldest first."""
    app = holdfast.App()
    order: list[str] = []

    @app.job
    async def note(name: str) -> None:
        order.append(name)

    handles = [
        await client.enqueue(note.job(f"{priority}{letter}"), priority=priority)
        for letter in "ab"
        for priority in (9, 5, 0, 5)
    ]
    await work(app, slots=1, prefetch=0, poll=NEVER)
    for handle in handles:
        await client.wait(handle.id, timeout=20)
    assert order == ["0a", "0b", "5a", "5a", "5b", "5b", "9a", "9b"]


async def test_an_urgent_job_overtakes_the_backlog(client: holdfast.Client, work: Any) -> None:
    """Enqueued while others wait, it is the next to run."""
    app = holdfast.App()
    order: list[str] = []
    first, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def note(name: str) -> None:
        order.append(name)
        if name == "first":
            first.set()
            await go.wait()

    await work(app, slots=1, prefetch=0, poll=NEVER)
    handles = [await client.enqueue(note.job(name)) for name in ("first", "second", "third")]
    await first.wait()
    handles.append(await client.enqueue(note.job("urgent"), priority=0))
    go.set()
    for handle in handles:
        await client.wait(handle.id, timeout=20)
    assert order == ["first", "urgent", "second", "third"]


@pytest.mark.parametrize("change", ["pause", "limit", "key_limit"])
async def test_what_waits_in_the_buffer_obeys_a_queue_that_is_paused_or_limited_now(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """Jobs that were claimed ahead before the change go back unspent: they begin under the new rule."""
    # However slow this machine is: nothing goes back for the time that it has waited.
    monkeypatch.setattr(claimer, "STALE", 600.0)
    app, go = holdfast.App(), asyncio.Event()
    go.set()

    @app.job
    async def step() -> None:
        # From here on both slots stand still, and more waits in the buffer than they took.
        if len(process.worker.claimer._buffer) > 5:
            go.clear()
        await go.wait()

    async def is_shut() -> bool:
        return not go.is_set()

    queues = Operator(db.database, "tester").queues
    await queues.key_limit("default", 5000, create=True)
    process = await work(app, slots=2)
    jobs = [step.job() for _ in range(2000)]
    if change == "key_limit":
        await client.enqueue_many(jobs, concurrency_key="of all")
    else:
        await client.enqueue_many(jobs)
    await eventually(is_shut)
    match change:
        case "pause":
            await queues.pause("default")
        case "limit":
            await queues.limit("default", 1)
        case _:
            await queues.key_limit("default", 1)
    put_back = "select count(*) from holdfast.attempts where reason = 'its queue is paused or limited'"
    await eventually(lambda: db.value(put_back))
    begun = sorted(fence.job_id for fence in process.worker.held.running)
    assert len(begun) == 2

    async def only_these_are_held() -> bool:
        # What has ended is held until its report is acknowledged.
        return [job_id for (job_id,) in await db.fetch(HELD)] == begun

    await eventually(only_these_are_held)
    go.set()


async def test_jobs_of_a_key_claimed_ahead_never_overlap(client: holdfast.Client, work: Any) -> None:
    """Two workers with room for more run 40 keys: each job once, one of a key at a time, claimed ahead."""
    app, running, clashes, done, ahead = holdfast.App(), set[int](), list[int](), list[int](), list[int]()
    all_done = asyncio.Event()

    @app.job
    async def step(key: int, n: int) -> None:
        if key in running:
            clashes.append(n)
        running.add(key)
        await asyncio.sleep(0.001)
        running.discard(key)
        done.append(n)
        ahead.extend(len(process.worker.claimer._buffer) for process in processes)
        if len(done) == 2000:
            all_done.set()

    for key in range(40):
        jobs = [step.job(key, 50 * key + n) for n in range(50)]
        await client.enqueue_many(jobs, concurrency_key=f"key {key}")
    processes = [await work(app, slots=5, poll=NEVER) for _ in range(2)]
    async with asyncio.timeout(60):
        await all_done.wait()
    assert clashes == []
    assert sorted(done) == list(range(2000))
    assert max(ahead) > 0


async def test_a_limited_queue_is_not_starved_by_one_with_keys(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """Jobs with keys are not claimed ahead beside it, so slots fall free for it long before they are done."""
    app, keyed, limited = holdfast.App(), list[int](), list[int]()
    done = asyncio.Event()

    @app.job
    async def step(n: int) -> None:
        await asyncio.sleep(0.001)
        keyed.append(n)

    @app.job
    async def rare(n: int) -> None:
        limited.append(n)
        if len(limited) == 5:
            done.set()

    await Operator(db.database, "tester").queues.limit("capped", 1, create=True)
    for key in range(300):
        await client.enqueue_many([step.job(key)] * 10, queue="keyed", concurrency_key=str(key))
    await client.enqueue_many([rare.job(n) for n in range(5)], queue="capped")
    await work(app, slots=2, poll=NEVER, queues=("keyed", "capped"))
    async with asyncio.timeout(60):
        await done.wait()
    assert len(keyed) < 1500


async def test_a_kind_of_another_application_is_left_alone(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """A worker claims only kinds that it has handlers for, also from a queue that it works on."""
    app = holdfast.App()

    @app.job
    async def known() -> None: ...

    other = await client.enqueue(holdfast.JobRequest("unknown", "{}"), priority=0)
    await work(app, poll=NEVER)
    await client.wait((await client.enqueue(known.job())).id, timeout=20)
    assert await db.value("select state from holdfast.live_jobs where job_id = $1", other.id) == "available"
    assert len(probe.seen("attempt.started")) == 1
