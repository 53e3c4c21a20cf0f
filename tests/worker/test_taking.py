"""How a worker takes jobs: at once, in order, and all of them."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.store.database import Database
from holdfast.store.sqlfile import rendered
from holdfast.store.statement import Statement
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import claimer, intake, turns, wake_level
from holdfast.worker.limits import Limited, Limits
from holdfast.worker.prefetch import Prefetch
from tests.store.scene import Scene

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


async def test_slots_that_end_together_claim_at_once(
    client: holdfast.Client, work: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them see the buffer as it was before the first of them has taken from it."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    monkeypatch.setattr(Prefetch, "measure", lambda self: setattr(self, "room", 1))
    app, gate, stays = holdfast.App(), asyncio.Event(), asyncio.Event()
    begun = list[int]()

    @app.job
    async def step(n: int) -> None:
        begun.append(n)
        await (gate if n < 10 else stays).wait()

    await client.enqueue_many([step.job(n) for n in range(100)])
    worker = (await work(app, slots=10, poll=NEVER)).worker
    await eventually(lambda: asyncio.sleep(0, (len(begun), len(worker._buffer)) == (10, 1)))
    gate.set()
    await eventually(lambda: asyncio.sleep(0, len(begun) == 20))


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


async def test_the_first_jobs_after_a_pause_share_a_turn_of_the_loop(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn of the slots begins with its first job, however long ago the last one ended."""
    monkeypatch.setattr(Prefetch, "measure", lambda self: setattr(self, "room", 20))
    app, rows, done = holdfast.App(), [0], asyncio.Event()

    @app.job
    async def step() -> None:
        rows[-1] += 1
        if sum(rows) == 10:
            done.set()

    def turn() -> None:
        rows.append(0)
        if not done.is_set():
            asyncio.get_running_loop().call_soon(turn)

    await work(app, slots=2, poll=NEVER)
    for longest, shape in ((0.0, [2] * 5), (NEVER, [10])):
        monkeypatch.setattr(turns, "LONGEST_RUN", longest)
        rows[:] = [0]
        done.clear()
        await eventually(lambda: db.value("select true from holdfast.workers where wakes_below = 10"))
        turn()
        await client.enqueue_many([step.job() for _ in range(10)])
        async with asyncio.timeout(30):
            await done.wait()
        assert [row for row in rows if row] == shape


async def test_a_queue_that_is_named_twice_is_asked_once(work: Any, db: ThrowawayDatabase) -> None:
    """A claim would look through its lines twice, and its turn at the front come twice as often."""
    process = await work(holdfast.App(), queues=("mail", "default", "mail"))
    assert process.worker.config.queues == ("mail", "default")
    assert await db.value("select queues from holdfast.workers") == ["mail", "default"]


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
    await eventually(lambda: db.value("select true from holdfast.workers where wakes_below = 10"))
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


async def test_few_jobs_with_keys_are_claimed_at_once(
    client: holdfast.Client, work: Any, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast its slots are: the keys of a claim are taken for as long as it is under way."""
    monkeypatch.setattr(claimer, "MOST_OF_KEYS", 5)
    app = holdfast.App()

    @app.job
    async def note(n: int) -> None: ...

    handles = await client.enqueue_many(
        [note.job(n).with_options(concurrency_key=f"k{n}") for n in range(600)]
    )
    await work(app, slots=2, poll=NEVER)
    for handle in handles:
        await client.wait(handle.id, timeout=20)
    assert max(fields["count"] for fields in probe.seen("jobs.claimed")) <= 5


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


def standstill(app: holdfast.App, go: asyncio.Event, process: Callable[[], Any]) -> Any:
    """Return a job that shuts *go*, and waits for it, once more is in the buffer than its slots took."""
    go.set()

    @app.job
    async def step() -> None:
        if len(process().worker.claimer._buffer) > 5:
            go.clear()
        await go.wait()

    return step


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
    step = standstill(app, go, lambda: process)

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


@pytest.mark.parametrize("priority", [5, 9])
@pytest.mark.parametrize("beside", ["jobs with keys", "jobs without"])
async def test_a_limited_queue_is_not_starved_by_what_fills_the_buffer(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, beside: str, priority: int
) -> None:
    """One of its jobs at a time goes before all others, and no more of the limit is held without running."""
    app, others, limited, ahead = holdfast.App(), list[int](), list[int](), list[int]()
    done = asyncio.Event()

    @app.job
    async def step(n: int) -> None:
        ahead.append(sum(entry[-1].queue == "capped" for entry in process.worker.claimer._buffer._entries))
        await asyncio.sleep(0.001)
        others.append(n)

    @app.job
    async def rare(n: int) -> None:
        limited.append(n)
        if len(limited) == 5:
            done.set()

    await Operator(db.database, "tester").queues.limit("capped", 3, create=True)
    for n in range(300):
        jobs = [step.job(n)] * 10
        if beside == "jobs with keys":
            await client.enqueue_many(jobs, queue="others", concurrency_key=str(n))
        else:
            await client.enqueue_many(jobs, queue="others")
    await client.enqueue_many([rare.job(n) for n in range(5)], queue="capped", priority=priority)
    process = await work(app, slots=2, poll=NEVER, queues=("others", "capped"))
    async with asyncio.timeout(60):
        await done.wait()
    assert len(others) < 1500
    assert max(ahead) <= 1


async def test_the_next_claim_is_under_way_before_handlers_go_on(
    client: holdfast.Client, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is more than a claim brings, the database is not left without one."""
    app, order, done = holdfast.App(), list[str](), asyncio.Event()

    @app.job
    async def step() -> None:
        order.append("handler")
        if order.count("handler") == 5000:
            done.set()

    asked = intake.Intake.claim

    async def claim(self: intake.Intake, *queues: Any, **amount: Any) -> Any:
        order.append("asks")
        claimed = await asked(self, *queues, **amount)
        order.append("has")
        return claimed

    monkeypatch.setattr(intake.Intake, "claim", claim)
    await client.enqueue_many([step.job()] * 5000)
    await work(app, slots=5, poll=NEVER)
    async with asyncio.timeout(60):
        await done.wait()
    assert ("has", "asks") in pairwise(order)


async def test_a_claimer_that_will_look_anyway_is_not_asked_again(work: Any) -> None:
    """Each slot that takes a job says so; but a look at one announced job is no look at the queues."""
    app = holdfast.App()

    @app.job
    async def greet() -> None: ...

    claimer = (await work(app, poll=NEVER)).worker.claimer
    await claimer.stop()
    claimer.intake.has_more, claimer.is_woken = True, False
    before = claimer._asked
    claimer.freed()
    claimer.freed()
    assert claimer._asked == before + 1
    claimer._announced = 1, {"default"}
    claimer.freed()
    assert claimer._asked == before + 2


async def test_limits_that_change_while_they_are_read_are_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer under way is older than the change, and would count for a minute."""
    queues, run = ("a", "b"), Database.run
    await scene.worker(*queues)
    await scene.db.fetch("update holdfast.queues set max_running = 1 where name = 'a'")
    limits = Limits(scene.db.database, 60.0, lambda *_: None)

    async def slow(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        answer = await run(database, statement, *rest)
        monkeypatch.undo()
        await scene.db.fetch("update holdfast.queues set max_running = 1 where name = 'b'")
        limits.forget()
        return answer

    monkeypatch.setattr(Database, "run", slow)
    assert await limits.read(queues) == Limited(queues={"a", "b"}, capped={"a", "b"})


async def test_a_worker_that_hears_nothing_asks_for_limits_now_and_then(work: Any) -> None:
    """Behind a pooler it also does so where one full claim follows another and it never rests."""
    process = await work(holdfast.App(), poll=NEVER, listen=False)
    one = process.worker.claimer
    await one.turn()
    one._limits._read_at -= NEVER
    before = one._limits._read_at
    await one.turn()
    assert one._limits._read_at > before


async def test_a_limited_queue_has_its_turn_where_slots_are_rarely_free(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """Slow handlers leave no room to claim ahead: what slot falls free, queues take in turns."""
    app, done, over = holdfast.App(), list[str](), asyncio.Event()

    @app.job
    async def step(queue: str) -> None:
        await asyncio.sleep(0.15)
        done.append(queue)
        if done.count("capped") == 3:
            over.set()

    await Operator(db.database, "tester").queues.limit("capped", 1, create=True)
    await client.enqueue_many([step.job("others")] * 60, queue="others")
    await client.enqueue_many([step.job("capped")] * 3, queue="capped")
    await work(app, slots=1, poll=NEVER, queues=("others", "capped"))
    async with asyncio.timeout(60):
        await over.wait()
    assert len(done) < 20


async def test_what_waits_in_the_buffer_too_long_is_given_back_before_the_next_poll(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slots that stand still keep no key from other workers, however rarely this one looks."""
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    monkeypatch.setattr(claimer, "STALE", 0.3)
    app, go = holdfast.App(), asyncio.Event()
    step = standstill(app, go, lambda: process)
    process = await work(app, slots=2, poll=NEVER)
    for key in range(40):
        await client.enqueue_many([step.job()] * 50, concurrency_key=str(key))
    given_back = "select count(*) from holdfast.attempts where reason like 'it waited too long%'"
    await eventually(lambda: db.value(given_back))
    go.set()


async def test_a_key_is_free_again_when_a_handlers_own_transaction_has_ended_its_job(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next job of the key is looked for at once, and not at the next poll."""
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    app = holdfast.App()

    @app.job
    async def step(job: holdfast.Job) -> None:
        async with job.transaction():
            pass

    await work(app, slots=2, poll=NEVER)
    # Of what is enqueued while it is awake nobody tells it.
    await eventually(lambda: db.value("select wakes_below = 10 from holdfast.workers"))
    handles = await client.enqueue_many([step.job()] * 10, concurrency_key="one")
    for handle in handles:
        await client.wait(handle.id, timeout=20)


async def test_a_transaction_that_saw_its_worker_awake_may_commit_long_after_it_fell_asleep(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It calls nobody, so the worker looks for as long as such a transaction runs, and then no more."""
    monkeypatch.setattr(wake_level, "LOOKS", (0.01,))
    monkeypatch.setattr(wake_level, "LATE", 0.05)
    app, run, thrice = holdfast.App(), Database.run, asyncio.Event()
    looks: list[tuple[int, int]] = []

    @app.job
    async def known() -> None: ...

    async def seen(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        answer = await run(database, statement, *rest)
        if statement.name == "running_transactions":
            looks.append(answer)
            if len(looks) == 3:
                thrice.set()
        return answer

    late = await db.database.connect()
    transaction = late.transaction()
    await transaction.start()
    # As holdfast.enqueue() does it where no worker is asleep.
    asked = "insert into holdfast.jobs (id, kind, queue) values (1, 'known', 'default')"
    lived = """
        insert into holdfast.live_jobs (job_id, place, queue, kind, priority, state, run_at)
        values (1, 1, 'default', 'known', 5, 'available', now())
    """
    for insert in (asked, lived):
        await late.execute(rendered(insert, db.schema))
    monkeypatch.setattr(Database, "run", seen)
    await work(app, poll=NEVER)
    async with asyncio.timeout(20):
        await thrice.wait()
    await transaction.commit()
    await late.close()
    await client.wait(1, timeout=20)
    oldest, following = looks[0]
    assert oldest < following


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
