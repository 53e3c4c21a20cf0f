"""Room under a limit that its worker cannot use: another one takes it, long before the next poll."""

import asyncio
import time
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.store.workers import running_transactions
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import openings, slumber
from holdfast.worker.openings import Openings

# So rare that a test which needs a look would time out.
NEVER = 60.0
QUEUE = "limited"
ASLEEP = "select count(*) = 1 from holdfast.workers where wakes_below = 10 and queues = array['limited']"


class Hall:
    """A worker that runs the one job that a limit allows, and one that sleeps until it may run the next."""

    def __init__(self, client: holdfast.Client, work: Any, db: ThrowawayDatabase, eventually: Any) -> None:
        self.app, self.client, self.db = holdfast.App(), client, db
        self.go, self.begun, self.stays = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._work, self.eventually = work, eventually

        @self.app.job
        async def first() -> None:
            self.begun.set()
            await self.go.wait()

        @self.app.job
        async def other() -> None:
            await self.stays.wait()

        @self.app.job
        async def second() -> str:
            return "it has begun"

        self.first, self.other, self.second = first, other, second

    async def fill(self, key: str | None) -> int:
        """Fill the limit; answers the job that waits for it."""
        keyed: dict[str, Any] = {} if key is None else {"concurrency_key": key}
        self.busy = await self._work(self.app, slots=1, poll=NEVER, queues=("other", QUEUE))
        await self.client.enqueue(self.first.job(), queue=QUEUE, **keyed)
        await self.begun.wait()
        waiting = await self.client.enqueue(self.second.job(), queue=QUEUE, **keyed)
        await self._work(self.app, slots=5, poll=NEVER, queues=(QUEUE,))
        await self.eventually(lambda: self.db.value(ASLEEP))
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
    monkeypatch.setattr(slumber, "LOOKS", (NEVER,))
    return Hall(client, work, db, eventually)


@pytest.mark.parametrize("key", [None, "k"], ids=["limit of the queue", "key"])
@pytest.mark.parametrize("then", ["drains", "stops", "takes another job"])
async def test_room_that_its_worker_has_no_use_for_is_passed_on(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, key: str | None, then: str
) -> None:
    """Who runs the job that fills a limit is the only one to learn of its end."""
    monkeypatch.setattr(openings, "PATIENCE", 0.1 if then == "takes another job" else NEVER)
    await Operator(hall.db.database, "tester").queues.limit(QUEUE, None if key else 1, create=True)
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
    await Operator(hall.db.database, "tester").queues.limit(QUEUE, 1, create=True)
    await hall.fill(None)
    worker = hall.busy.worker
    worker.slots.turnover.room = lambda _: 5
    worker.claimer.openings.note({QUEUE})
    found = await worker.claimer.intake.claim((QUEUE,), free=0, wanted=0)
    assert [job.ahead for job in found] == [True]
    assert set(worker.claimer.openings._noted) == {QUEUE}
    hall.go.set()


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
    monkeypatch.setattr(openings, "announce_room", lambda *asked: told.append(asked))
    await Operator(hall.db.database, "tester").queues.limit(QUEUE, 1, create=True)
    waiting = await hall.fill(None)
    hall.go.set()
    assert await hall.client.wait(waiting, timeout=20) == "it has begun"
    mine = hall.busy.worker.claimer.openings
    await hall.eventually(lambda: asyncio.sleep(0, not mine._noted))
    assert told == []
