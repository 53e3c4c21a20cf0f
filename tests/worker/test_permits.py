"""A worker hands the permits of a limited queue on, and never runs more than the limit says."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.model.job import ClaimedJob
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import claimer, wake_level
from holdfast.worker.buffer import Buffer
from holdfast.worker.running import Settlement
from holdfast.worker.transaction import LoopTransaction
from tests.store.test_limits import most_at_once

NEVER = 60.0
QUEUE = "capped"
INTERVALS = "select job_id, claimed_at, finished_at from holdfast.finished_jobs where queue = 'capped'"
STANDING = "select count(*) from holdfast.live_jobs where queue = 'capped' and worker_id is not null"
NO_CLAIM = """
    select not exists (select from pg_stat_activity where state = 'active' and query like '%claim_limited%'
                       and datname = current_database() and pid <> pg_backend_pid())"""

Limit = Callable[[int | None], Awaitable[Any]]


@pytest.fixture
def limit(db: ThrowawayDatabase) -> Limit:
    """Set the limit of the queue."""
    return lambda most: Operator(db.database, "tester").queues.limit(QUEUE, most, create=True)


class Yard:
    """Handlers that count how many of them run, and what waited for a permit meanwhile."""

    def __init__(self, jobs: int) -> None:
        self.app, self.left = holdfast.App(), jobs
        self.running = self.most = self.ahead = 0
        self.processes: list[Any] = []
        self.over = asyncio.Event()

    async def __aenter__(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.ahead = max([self.ahead, *(one.worker.claimer._buffer.ahead for one in self.processes)])

    async def __aexit__(self, *_: object) -> None:
        self.running -= 1

    def done(self) -> None:
        """Count a job that has ended for good."""
        self.left -= 1
        if self.left == 0:
            self.over.set()

    def brief(self) -> Any:
        """Register a handler that takes a moment and ends its job."""

        @self.app.job
        async def step() -> None:
            async with self:
                await asyncio.sleep(0.001)
            self.done()

        return step

    async def is_ahead(self) -> None:
        """Wait until jobs have been claimed ahead of permits."""
        async with asyncio.timeout(30):
            while not self.ahead:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    async def wait(self) -> None:
        """Wait until all jobs have ended."""
        async with asyncio.timeout(60):
            await self.over.wait()


Start = Callable[..., Awaitable[None]]


@pytest.fixture
def start(client: holdfast.Client, work: Any, limit: Limit) -> Start:
    """Put workers to jobs that wait under a limit: ``await start(yard, jobs, most=4)``."""

    async def go(yard: Yard, jobs: list[Any], *, most: int, workers: int = 1, **options: Any) -> None:
        await limit(most)
        await client.enqueue_many(jobs, queue=QUEUE)
        options = {"slots": 5, "poll": 0.2} | options
        yard.processes = [await work(yard.app, queues=(QUEUE,), **options) for _ in range(workers)]

    return go


async def test_two_workers_hand_permits_on_and_keep_the_limit(
    start: Start, db: ThrowawayDatabase, eventually: Any
) -> None:
    """By the handlers' own count and by the recorded times three run at once; others are claimed ahead."""
    yard = Yard(1500)
    await start(yard, [yard.brief().job()] * 1500, most=3, workers=2)
    await yard.wait()
    await eventually(lambda: db.value("select not exists (select from holdfast.live_jobs)"))
    assert yard.most == 3
    assert yard.ahead > 0
    recorded = await db.fetch(INTERVALS)
    assert len(recorded) == 1500
    assert most_at_once(recorded) <= 3


async def test_whatever_becomes_of_jobs_the_limit_holds_and_all_of_them_end(start: Start) -> None:
    """Retries, snoozes, errors, own transactions and threads let permits go in ways of their own."""
    yard, seen = Yard(600), set[int]()

    @yard.app.job(retry=holdfast.Constant(timedelta(0)), max_attempts=3)
    async def step(job: holdfast.Job, n: int) -> Any:
        again = n in seen
        seen.add(n)
        async with yard:
            await asyncio.sleep(0.0005 * (n % 4))
            if n % 7 == 1 and not again:
                return holdfast.Retry(0.0)
            if n % 7 == 2 and not again:
                return holdfast.Snooze(0.001)
            if n % 7 == 3 and not again:
                raise ValueError(n)
        # What its own transaction has ended has let its permit go.
        yard.done()
        if n % 7 == 4:
            async with job.transaction():
                pass
        return holdfast.Cancel() if n % 7 == 5 else None

    await start(yard, [step.job(n) for n in range(600)], most=4, workers=2, slots=6)
    await yard.wait()
    assert yard.most <= 4


async def test_a_lowered_limit_is_reached_though_permits_are_handed_on(start: Start, limit: Limit) -> None:
    """Without it four would hand theirs on for ever."""
    yard, lowered = Yard(3000), asyncio.Event()
    later: list[int] = []

    @yard.app.job
    async def step() -> None:
        async with yard:
            await asyncio.sleep(0.001)
            if lowered.is_set():
                later.append(yard.running)
        yard.done()

    await start(yard, [step.job()] * 3000, most=4)
    await yard.is_ahead()
    await limit(1)
    lowered.set()
    await yard.wait()
    assert later[-500:] == [1] * 500


async def test_a_paused_queue_stands_still_though_permits_are_handed_on(
    start: Start, db: ThrowawayDatabase, eventually: Any
) -> None:
    """What was claimed ahead is given back, and goes on when the queue does."""
    yard = Yard(2000)
    await start(yard, [yard.brief().job()] * 2000, most=4)
    await yard.is_ahead()
    operator = Operator(db.database, "tester")
    await operator.queues.pause(QUEUE)
    await eventually(lambda: db.value(STANDING.replace("count(*)", "count(*) = 0")))
    assert 0 < yard.left < 2000
    await operator.queues.resume(QUEUE)
    await yard.wait()


async def test_who_waits_for_a_permit_has_the_next_that_was_let_go(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that end in their own transaction hand nothing on: a claim does, and not at the next poll."""
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    monkeypatch.setattr(claimer, "STALE", NEVER)
    yard = Yard(400)

    @yard.app.job
    async def step(job: holdfast.Job, n: int) -> None:
        async with yard:
            await asyncio.sleep(0.001)
        yard.done()
        if n >= 300:
            async with job.transaction():
                pass

    await start(yard, [step.job(n) for n in range(400)], most=2, poll=NEVER)
    await yard.wait()
    assert yard.ahead > 0
    assert yard.most <= 2


async def test_a_stop_gives_back_what_waits_for_a_permit(start: Start, db: ThrowawayDatabase) -> None:
    """Nothing stays claimed, and nothing counts as a failure."""
    yard = Yard(3000)
    await start(yard, [yard.brief().job()] * 3000, most=4)
    await yard.is_ahead()
    await yard.processes[0].stop(20.0)
    assert await db.value(STANDING) == 0
    assert await db.value("select sum(failures) from holdfast.live_jobs") == 0
    left = await db.value("select count(*) from holdfast.live_jobs")
    assert left == yard.left


@pytest.mark.parametrize("how", ["snooze", "own transaction"])
async def test_an_heir_that_lets_its_permit_go_at_once_does_so_after_its_giver(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    limit: Limit,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Else its permit were free in the database while nobody looks, and its times before its giver's."""
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    monkeypatch.setattr(claimer, "STALE", NEVER)
    yard = Yard(1000)

    @yard.app.job(max_attempts=5)
    async def step(job: holdfast.Job, n: int) -> Any:
        yard.done()
        await asyncio.sleep(0)
        if n % 2 and how == "snooze":
            return holdfast.Snooze(600.0)
        if n % 2:
            async with job.transaction():
                pass
        return None

    await limit(1)
    await client.enqueue_many([step.job(n) for n in range(1000)], queue=QUEUE)
    process = await work(yard.app, slots=3, poll=NEVER, queues=(QUEUE,))
    await yard.wait()
    await process.stop(20.0)
    assert most_at_once(await db.fetch(INTERVALS)) <= 1


async def test_an_own_transaction_of_which_nothing_was_heard_hands_nothing_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended the attempt and let the permit go, and another worker has it."""
    real = LoopTransaction.__aexit__

    async def unheard(self: Any, *error: Any) -> None:
        await real(self, *error)
        self._running.settlement = Settlement.IN_DOUBT
        raise ConnectionError

    monkeypatch.setattr(LoopTransaction, "__aexit__", unheard)
    yard = Yard(300)

    @yard.app.job(max_attempts=1)
    async def step(job: holdfast.Job, n: int) -> None:
        async with yard:
            await asyncio.sleep(0.002)
        yard.done()
        if n % 3 == 0:
            async with job.transaction():
                pass

    await start(yard, [step.job(n) for n in range(300)], most=1, workers=2, poll=0.1)
    await yard.wait()
    assert yard.most == 1


class Blocked:
    """A worker whose four permits are held by handlers that wait, and with eight jobs claimed ahead."""

    def __init__(self, client: holdfast.Client, work: Any, limit: Limit) -> None:
        self._client, self._work, self._limit = client, work, limit
        self.app, self.go, self.begun = holdfast.App(), asyncio.Event(), list[int]()

        @self.app.job
        async def step(n: int) -> Any:
            self.begun.append(n)
            await self.go.wait()
            return holdfast.Snooze(600.0) if n < 4 else None

        self.job = step.job

    async def start(self, eventually: Any, *queues: str) -> Any:
        """Start the worker, which finds more to claim ahead as soon as it looks again."""
        await self._limit(4)
        await self._client.enqueue_many([self.job(n) for n in range(100)], queue=QUEUE)
        process = await self._work(self.app, slots=8, poll=NEVER, queues=(QUEUE, *queues))
        await eventually(lambda: _holds(len(self.begun) == 4))
        process.worker.permits.turnover.room = lambda _: 8
        process.worker.claimer.wake()
        await eventually(lambda: _holds(process.worker.claimer._buffer.ahead == 8))
        return process


async def _holds(value: bool) -> bool:
    return value


async def test_a_drain_gives_back_what_waits_for_a_permit(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, limit: Limit, eventually: Any
) -> None:
    """Nobody would look after it any more, and the drain would never end."""
    blocked = Blocked(client, work, limit)
    process = await blocked.start(eventually)
    process.worker.drain()
    await eventually(lambda: db.value(STANDING.replace("count(*)", "count(*) = 4")))
    blocked.go.set()
    async with asyncio.timeout(20):
        await process.drained()


async def test_nothing_begins_any_more_under_a_limit_of_none(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    limit: Limit,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was claimed ahead under the former limit is given back."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    blocked = Blocked(client, work, limit)
    await blocked.start(eventually)
    await limit(0)
    await eventually(lambda: db.value(STANDING.replace("count(*)", "count(*) = 4")))
    blocked.go.set()
    await eventually(lambda: db.value(STANDING.replace("count(*)", "count(*) = 0")))
    assert len(blocked.begun) == 4


async def test_what_waits_for_a_permit_begins_when_the_limit_is_lifted(
    client: holdfast.Client, work: Any, limit: Limit, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs a permit any more, and all slots are taken."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    blocked = Blocked(client, work, limit)
    await blocked.start(eventually)
    await limit(None)
    await eventually(lambda: _holds(len(blocked.begun) == 8))
    blocked.go.set()


async def test_a_key_is_looked_for_though_another_queue_waits_for_permits(
    client: holdfast.Client, work: Any, limit: Limit, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is claimed ahead in one queue is no reason to look at another one later."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    blocked, over = Blocked(client, work, limit), asyncio.Event()
    ended: list[int] = []

    @blocked.app.job
    async def quick(n: int) -> None:
        ended.append(n)
        if len(ended) == 20:
            over.set()

    await blocked.start(eventually, "keyed")
    await client.enqueue_many([quick.job(n) for n in range(20)], queue="keyed", concurrency_key="one")
    async with asyncio.timeout(20):
        await over.wait()


async def test_what_is_claimed_ahead_leaves_slots_to_other_queues(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, limit: Limit, eventually: Any
) -> None:
    """It takes no slot, so the queue behind it is asked for all that are free."""
    blocked = Blocked(client, work, limit)
    await Operator(db.database, "tester").queues.limit("other", 3, create=True)
    process = await blocked.start(eventually, "other")
    one = process.worker.claimer
    await one.stop()
    # A claim that was cut off must not come late and take the permits.
    await eventually(lambda: db.value(NO_CLAIM))
    await client.enqueue_many([blocked.job(n) for n in range(20)], queue="other")
    process.worker.permits.turnover.room = lambda queue: 30 if queue == QUEUE else 0
    found = await one.intake.claim((QUEUE, "other"), free=4, wanted=4)
    assert [job.queue for job in found if not job.ahead] == ["other"] * 3
    assert sum(job.ahead for job in found) > 4
    blocked.go.set()


def claimed(number: int, priority: int = 5, *, queue: str = QUEUE, ahead: bool = True) -> ClaimedJob:
    """A job as a claim brings it."""
    return ClaimedJob(
        number,
        1,
        0,
        "step",
        queue,
        priority,
        5,
        1.0,
        "{}",
        None,
        "{}",
        None,
        None,
        0.0,
        0.0,
        False,
        number,
        ahead,
    )


async def test_no_slot_gets_a_job_without_a_permit() -> None:
    """It has to be handed one, the best first."""
    buffer = Buffer()
    buffer.put_ahead([claimed(1), claimed(2), claimed(3, priority=0)])
    assert (len(buffer), buffer.ahead, buffer.ahead_of(QUEUE)) == (0, 3, 3)
    assert buffer.hand_on("another", 1) is None
    heir = buffer.hand_on(QUEUE, 1)
    assert heir is not None
    assert (await buffer.take())[-1] is heir
    assert (heir.id, buffer.ahead) == (3, 2)


async def test_a_permit_is_not_kept_for_one_behind_others() -> None:
    """Where all idle slots have something better to run, it is let go."""
    buffer = Buffer()
    buffer.put_ahead([claimed(5)])
    buffer.put([claimed(1, queue="others", ahead=False)])
    assert buffer.hand_on(QUEUE, 1) is None
    assert buffer.hand_on(QUEUE, 2) is not None
    assert [(await buffer.take())[-1].id for _ in range(2)] == [1, 5]


async def test_a_permit_from_the_database_goes_to_one_that_still_waits() -> None:
    """Who has been handed one meanwhile, or is gone, is not run a second time."""
    buffer = Buffer()
    buffer.put_ahead([claimed(1), claimed(2), claimed(3)])
    assert buffer.hand_on(QUEUE, 1) is not None
    assert buffer.remove(3, 1)
    assert [buffer.permit(claimed(n, ahead=False)) for n in (1, 2, 3)] == [False, True, False]
    assert buffer.ahead == 0
    assert [(await buffer.take())[-1].id for _ in range(2)] == [1, 2]
    assert len(buffer) == 0
    # A claimer that took the past for the age of what waits would never rest.
    assert buffer.oldest(0.0) == 0.0


async def test_what_waits_for_a_permit_is_given_up_like_the_rest() -> None:
    """By age, by queue, and one by one."""
    buffer = Buffer()
    buffer.put_ahead([claimed(1), claimed(2), claimed(3, queue="others")])
    buffer.put([claimed(4, ahead=False)])
    assert buffer.oldest(0.0) > 0
    assert [job.id for job in buffer.give_up_of({"others"})] == [3]
    assert not buffer.remove(9, 1)
    assert buffer.give_up(older_than=60.0) == []
    assert sorted(job.id for job in buffer.give_up()) == [1, 2, 4]
    assert (len(buffer), buffer.ahead) == (0, 0)
    assert buffer.oldest(0.0) == 0.0
