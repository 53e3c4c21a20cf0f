"""Room under a limit that its worker cannot use: another one takes it, long before the next poll."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.store.workers import running_transactions
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import claimer, openings, wake_level
from holdfast.worker.openings import Openings

# So rare that a test which needs a look would time out.
NEVER = 60.0
QUEUE = "limited"
ASLEEP = "select wakes_below = 10 from holdfast.workers where id = $1"
ASLEEP_OF_FIVE = "select count(*) = 1 from holdfast.workers where wakes_below = 10 and slots = 5"
RAISE = "update holdfast.queues set max_running = 2 where name = 'limited'"


class Hall:
    """A worker that runs the one job that a limit allows, and one that sleeps until it may run the next."""

    def __init__(self, client: holdfast.Client, work: Any, db: ThrowawayDatabase, eventually: Any) -> None:
        self.app, self.client, self.db = holdfast.App(), client, db
        self.go, self.begun, self.stays = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._work, self.eventually, self.others = work, eventually, 0

        @self.app.job
        async def first() -> None:
            self.begun.set()
            await self.go.wait()

        @self.app.job
        async def other() -> None:
            self.others += 1
            await self.stays.wait()

        @self.app.job
        async def second() -> str:
            return "it has begun"

        self.first, self.other, self.second = first, other, second

    async def work(self, app: holdfast.App, *, slots: int, queues: tuple[str, ...]) -> Any:
        """Start a worker that never polls."""
        process = await self._work(app, slots=slots, poll=NEVER, queues=queues)
        # Of what is enqueued while it is awake nobody tells it.
        await self.eventually(lambda: self.db.value(ASLEEP, process.worker.worker_id))
        return process

    async def limit(self, most: int | None) -> None:
        """Set the limit of the queue."""
        await Operator(self.db.database, "tester").queues.limit(QUEUE, most, create=True)

    async def is_true(self, fact: Callable[[], bool]) -> None:
        """Wait until something is the case in this process."""
        await self.eventually(lambda: asyncio.sleep(0, fact()))

    async def fill(self, key: str | None) -> int:
        """Fill the limit; answers the job that waits for it."""
        keyed: dict[str, Any] = {} if key is None else {"concurrency_key": key}
        self.busy = await self.work(self.app, slots=1, queues=("other", QUEUE))
        await self.client.enqueue(self.first.job(), queue=QUEUE, **keyed)
        await self.begun.wait()
        waiting = await self.client.enqueue(self.second.job(), queue=QUEUE, **keyed)
        await self.work(self.app, slots=5, queues=(QUEUE,))
        await self.eventually(lambda: self.db.value(ASLEEP_OF_FIVE))
        return waiting.id


@pytest.fixture
def hall(
    client: holdfast.Client,
    work: Any,
    db: ThrowawayDatabase,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Hall:
    """Nobody looks by himself once he has fallen asleep."""
    monkeypatch.setattr(wake_level, "LOOKS", (NEVER,))
    return Hall(client, work, db, eventually)


@pytest.mark.parametrize("key", [None, "k"], ids=["limit of the queue", "key"])
@pytest.mark.parametrize("then", ["drains", "stops", "takes another job"])
async def test_room_that_its_worker_has_no_use_for_is_passed_on(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, key: str | None, then: str
) -> None:
    """Who runs the job that fills a limit is the only one to learn of its end."""
    monkeypatch.setattr(openings, "PATIENCE", 0.1 if then == "takes another job" else NEVER)
    await hall.limit(None if key else 1)
    waiting = await hall.fill(key)
    if then == "takes another job":
        await hall.client.enqueue(hall.other.job(), queue="other", priority=0)
    elif then == "drains":
        hall.busy.worker.drain()
    stopping = asyncio.create_task(hall.busy.stop(20.0)) if then == "stops" else None
    hall.go.set()
    assert await hall.client.wait(waiting, timeout=20) == "it has begun"
    hall.stays.set()
    if stopping is not None:
        await stopping


async def test_a_claim_of_what_has_to_wait_says_nothing_of_room(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without a free slot may claim ahead of permits and find few, while others have the slots."""
    monkeypatch.setattr(openings, "PATIENCE", NEVER)
    await hall.limit(1)
    await hall.fill(None)
    worker = hall.busy.worker
    worker.permits.turnover.room = lambda _: 5
    worker.claimer.openings.note({QUEUE})
    found = await worker.claimer.intake.claim((QUEUE,), free=0, wanted=0)
    assert [job.ahead for job in found] == [True]
    assert set(worker.claimer.openings._noted) == {QUEUE}
    hall.go.set()


@pytest.mark.parametrize("key", [None, "k"], ids=["limit of the queue", "key"])
async def test_room_for_a_kind_that_only_another_worker_runs_is_passed_on(
    hall: Hall, key: str | None
) -> None:
    """Whoever made the room finds nothing for itself in the queue, and still something is there."""
    await hall.limit(None if key else 1)
    keyed: dict[str, Any] = {} if key is None else {"concurrency_key": key}
    one, two = holdfast.App(), holdfast.App()
    one.job(kind="first")(hall.first.function)
    two.job(kind="second")(hall.second.function)
    await hall.work(one, slots=1, queues=(QUEUE,))
    await hall.client.enqueue(hall.first.job(), queue=QUEUE, **keyed)
    await hall.begun.wait()
    waiting = await hall.client.enqueue(hall.second.job(), queue=QUEUE, **keyed)
    await hall.work(two, slots=5, queues=(QUEUE,))
    await hall.eventually(lambda: hall.db.value(ASLEEP_OF_FIVE))
    hall.go.set()
    assert await hall.client.wait(waiting.id, timeout=20) == "it has begun"


async def test_who_has_jobs_ahead_of_permits_is_told_of_one(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are claimed already, so whoever made the room finds no job for it."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    await hall.limit(1)
    worker = (await hall.work(hall.app, slots=2, queues=(QUEUE,))).worker
    worker.permits.turnover.room = lambda _: 1
    await hall.client.enqueue(hall.first.job(), queue=QUEUE)
    await hall.begun.wait()
    waiting = await hall.client.enqueue(hall.second.job(), queue=QUEUE)
    await hall.eventually(lambda: hall.db.value("select bool_or(ahead) from holdfast.live_jobs"))
    await hall.eventually(lambda: hall.db.value("select wakes_below = 10 from holdfast.workers"))
    # As if another worker had let a permit go, and looked.
    await hall.db.fetch(RAISE)
    another = Openings(hall.db.database, lambda: None)
    another.begin(worker.worker_id + 1, worker.claimer.intake._kinds)
    another.note({QUEUE})
    another.looked(QUEUE, time.monotonic() + 1)
    await another.tell()
    assert await hall.client.wait(waiting.id, timeout=20) == "it has begun"


async def test_who_takes_no_more_than_its_share_of_the_keys_says_nothing_of_room(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without a free slot leaves the only key to others, who have to learn of it."""
    await hall.limit(None)
    waiting = await hall.fill("k")
    ahead = hall.busy.worker.claimer._prefetch
    monkeypatch.setattr(ahead, "measure", lambda: setattr(ahead, "room", 4))
    await hall.client.enqueue(hall.other.job(), queue="other", priority=0)
    hall.go.set()
    assert await hall.client.wait(waiting, timeout=20) == "it has begun"
    hall.stays.set()


async def test_who_must_not_claim_ahead_says_nothing_of_room(hall: Hall) -> None:
    """It asked for more than its free slot needs, and was not given them, however much room there is."""
    await hall.limit(3)
    worker = (await hall.work(hall.app, slots=1, queues=(QUEUE,))).worker
    await worker.claimer.stop()
    # The best in line is of a kind that the worker does not run.
    await hall.client.enqueue(JobRequest("strange", "{}"), queue=QUEUE, priority=0)
    await hall.client.enqueue_many([hall.other.job() for _ in range(4)], queue=QUEUE)
    worker.permits.turnover.room = lambda _: 5
    worker.claimer.openings.note({QUEUE})
    found = await worker.claimer.intake.claim((QUEUE,), free=1, wanted=1)
    assert [job.ahead for job in found] == [False]
    assert set(worker.claimer.openings._noted) == {QUEUE}
    hall.stays.set()


@pytest.mark.parametrize("key", [None, "k"], ids=["limit of the queue", "key"])
async def test_room_that_a_jobs_own_transaction_makes_is_taken_before_its_handler_returns(
    hall: Hall, key: str | None
) -> None:
    """The job has ended with its commit, whatever its handler does then."""
    await hall.limit(None if key else 1)
    keyed: dict[str, Any] = {} if key is None else {"concurrency_key": key}

    @hall.app.job
    async def commits(job: holdfast.Job) -> None:
        hall.begun.set()
        await hall.go.wait()
        async with job.transaction():
            pass
        await hall.stays.wait()

    await hall.work(hall.app, slots=5, queues=(QUEUE,))
    await hall.client.enqueue(commits.job(), queue=QUEUE, **keyed)
    await hall.begun.wait()
    waiting = await hall.client.enqueue(hall.second.job(), queue=QUEUE, **keyed)
    await hall.eventually(lambda: hall.db.value(ASLEEP_OF_FIVE))
    hall.go.set()
    assert await hall.client.wait(waiting.id, timeout=20) == "it has begun"
    hall.stays.set()


async def test_a_permit_that_is_one_too_many_is_passed_on(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was handed a permit here is given another one by a claim whose answer was under way."""
    monkeypatch.setattr(claimer, "STALE", NEVER)
    await hall.limit(1)
    worker = (await hall.work(hall.app, slots=2, queues=(QUEUE, "other"))).worker
    worker.permits.turnover.room = lambda _: 1
    await hall.client.enqueue(hall.first.job(), queue=QUEUE)
    await hall.begun.wait()
    await hall.client.enqueue(hall.other.job(), queue=QUEUE)
    await hall.eventually(lambda: hall.db.value("select bool_or(ahead) from holdfast.live_jobs"))
    await hall.is_true(lambda: worker._buffer.ahead == 1)
    await worker.claimer.stop()
    waiting = await hall.client.enqueue(hall.second.job(), queue=QUEUE)
    await hall.work(hall.app, slots=5, queues=(QUEUE,))
    await hall.eventually(lambda: hall.db.value(ASLEEP_OF_FIVE))
    # As if somebody had let a permit go, and this worker were the first to look.
    await hall.db.fetch(RAISE)
    await hall.client.enqueue(hall.other.job(), queue="other")
    run = Database.run_read_committed

    async def late(database: Database, statement: Statement[Any]) -> Any:
        found = await run(database, statement)
        if statement.name == "claim_limited" and any(job.is_held for job in found):
            hall.go.set()
            await hall.is_true(lambda: hall.others == 1)
        return found

    monkeypatch.setattr(Database, "run_read_committed", late)
    # Both slots are taken now, by jobs that stay.
    await worker.claimer.intake.claim((QUEUE, "other"), free=1, wanted=1)
    await hall.is_true(lambda: hall.others == 2)
    await worker.claimer.start()
    assert await hall.client.wait(waiting.id, timeout=20) == "it has begun"
    hall.stays.set()


async def test_room_that_comes_about_under_a_claim_is_none_that_the_claim_has_seen(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim had begun before: what it has left says nothing of that room."""
    told = list[list[str]]()

    def note(queues: list[str]) -> Statement[Any]:
        told.append(queues)
        return running_transactions()

    monkeypatch.setattr(openings, "announce_room", note)
    room = Openings(db.database, lambda: None)
    room.note({"before", "meanwhile"})
    while (asked_at := time.monotonic()) == room._noted["before"]:
        pass
    room.note({"meanwhile"})
    for queue in ("before", "meanwhile", "another"):
        room.looked(queue, asked_at)
    await room.tell()
    assert told == [["meanwhile"]]


async def test_who_could_not_be_told_is_told_later(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be away for a while."""
    told, run = list[object](), Database.run

    async def away(_database: Database, _statement: Statement[Any]) -> Any:
        monkeypatch.setattr(Database, "run", noted)
        raise DatabaseUnavailable("it is away")

    async def noted(database: Database, statement: Statement[Any]) -> Any:
        told.append(statement.parameters[0])
        return await run(database, statement)

    monkeypatch.setattr(Database, "run", away)
    room = Openings(db.database, lambda: None)
    room.note({QUEUE})
    with pytest.raises(DatabaseUnavailable):
        await room.tell()
    await room.tell()
    await room.tell()
    assert told == [[QUEUE]]


async def test_nobody_is_told_of_room_that_its_worker_takes_itself(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notification holds up everybody's commits."""
    told = list[object]()
    # Long enough for the next claim on a full machine, and short enough to come before the test gives up.
    monkeypatch.setattr(openings, "PATIENCE", 5.0)
    monkeypatch.setattr(openings, "announce_room", lambda *asked: told.append(asked))
    await hall.limit(1)
    waiting = await hall.fill(None)
    hall.go.set()
    assert await hall.client.wait(waiting, timeout=20) == "it has begun"
    mine = hall.busy.worker.claimer.openings
    await hall.eventually(lambda: asyncio.sleep(0, not mine._noted))
    assert told == []
