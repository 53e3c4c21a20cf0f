"""An urgent job goes before those that were claimed ahead, and waits for one job at most."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.rules import polling
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.store.statement import Statement, is_any
from holdfast.store.workers import ASLEEP
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import claimer, overtaking, wake_level
from holdfast.worker.buffer import Buffer
from holdfast.worker.overtaking import Overtaking
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.turnover import Turnover
from holdfast.worker.wake_level import WakeLevel
from tests.store.scene import Scene

BELOW = "select wakes_below from holdfast.workers"
LATE = """
with still as materialized (select pg_advisory_xact_lock(42)), late as (
    select holdfast.enqueue('step', '{"name": "urgent"}', priority => 0) from still
)
update holdfast.workers set wakes_below = $2::smallint from late where id = $1::bigint returning id"""

Eventually = Callable[..., Awaitable[Any]]


class Rush:
    """Handlers that stand still once jobs are claimed ahead."""

    def __init__(self, work: Any, eventually: Eventually) -> None:
        self.app, self.begun, self.go = holdfast.App(), list[str](), asyncio.Event()
        self._work, self._eventually, self._is_over = work, eventually, False
        self.go.set()

        @self.app.job
        async def step(name: str) -> None:
            self.begun.append(name)
            if len(self.buffer) + self.buffer.ahead > 2 and not self._is_over:
                self.go.clear()
            await self.go.wait()

        self.step = step

    @property
    def buffer(self) -> Buffer:
        """What is claimed ahead."""
        found: Buffer = self.process.worker.claimer._buffer
        return found

    async def stand_still(self) -> int:
        """Work until jobs are claimed ahead; answers how many have begun by then."""
        self.process = await self._work(self.app, slots=2, poll=60.0)

        async def is_still() -> bool:
            return not self.go.is_set() and len(self.process.worker.held.running) == 2

        await self._eventually(is_still)
        return len(self.begun)

    def go_on(self) -> None:
        """Let the handlers end, this time for good."""
        self._is_over = True
        self.go.set()


@pytest.fixture
def rush(work: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch) -> Rush:
    """However slow this machine is: so much is claimed ahead, and nothing goes back for having waited."""
    monkeypatch.setattr(claimer, "STALE", 600.0)
    monkeypatch.setattr(Prefetch, "measure", lambda self: setattr(self, "room", 20))
    monkeypatch.setattr(Turnover, "room", lambda _self, _queue: 20)
    return Rush(work, eventually)


@pytest.fixture
def claimed(rush: Rush, eventually: Eventually) -> Callable[[int], Awaitable[Any]]:
    """Waits until a job waits in the buffer: its row says so before its worker knows."""

    async def is_claimed(job_id: int) -> bool:
        held = rush.process.worker.held
        return job_id in {fence.job_id for fence in held.fences - held.running.keys()}

    return lambda job_id: eventually(lambda: is_claimed(job_id))


@pytest.mark.parametrize("most", [None, 2], ids=["no limit", "limited queue"])
async def test_what_is_urgent_goes_before_what_was_claimed_ahead(
    client: holdfast.Client,
    db: ThrowawayDatabase,
    rush: Rush,
    claimed: Any,
    eventually: Eventually,
    most: int | None,
) -> None:
    """It is claimed although the buffer is filled, and the next to begin, within limits too."""
    await Operator(db.database, "tester").queues.limit("default", most, create=True)
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)])
    begun = await rush.stand_still()
    await eventually(lambda: db.value(BELOW))
    urgent = await client.enqueue(rush.step.job("urgent"), priority=0)
    await claimed(urgent.id)
    rush.go_on()
    await client.wait(urgent.id, timeout=20)
    assert rush.begun[begun] == "urgent"


@pytest.mark.parametrize("rest", [3, 9], ids=["of the same priority", "that are less urgent still"])
async def test_what_is_urgent_is_looked_for_whatever_else_waits(
    client: holdfast.Client,
    db: ThrowawayDatabase,
    rush: Rush,
    claimed: Any,
    eventually: Eventually,
    rest: int,
) -> None:
    """How many jobs of the buffer go before its worst says nothing of those that go before what is urgent."""
    await client.enqueue_many([rush.step.job("low") for _ in range(18)], priority=3)
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)], priority=rest)
    begun = await rush.stand_still()
    await eventually(lambda: db.value("select wakes_below = $1 from holdfast.workers", rest))
    urgent = await client.enqueue(rush.step.job("urgent"), priority=0)
    await claimed(urgent.id)
    rush.go_on()
    await client.wait(urgent.id, timeout=20)
    assert rush.begun[begun] == "urgent"


async def test_all_that_is_urgent_goes_first_however_much_it_is(
    client: holdfast.Client, db: ThrowawayDatabase, rush: Rush, eventually: Eventually
) -> None:
    """More of it than a buffer holds is claimed piece by piece, each before the last has begun."""
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)])
    begun = await rush.stand_still()
    await eventually(lambda: db.value(BELOW))
    await client.enqueue_many([rush.step.job("urgent") for _ in range(100)], priority=0)

    async def is_next() -> bool:
        return rush.buffer.better_than(5) > 1 or rush.begun.count("urgent") > 95

    while rush.begun.count("urgent") < 95:
        await eventually(is_next)
        rush.go.set()
        await asyncio.sleep(0)
    rush.go_on()
    assert set(rush.begun[begun : begun + 95]) == {"urgent"}


async def test_a_worker_is_told_of_no_more_than_could_overtake(
    client: holdfast.Client, db: ThrowawayDatabase, rush: Rush, eventually: Eventually
) -> None:
    """A notification costs a lock on the whole database, so equals and less urgent ones make none."""
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)], priority=3)
    await rush.stand_still()
    await eventually(lambda: db.value("select wakes_below = 3 from holdfast.workers"))
    rush.go_on()


async def test_what_came_before_the_worker_said_of_what_to_tell_it_is_not_missed(
    client: holdfast.Client,
    db: ThrowawayDatabase,
    rush: Rush,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody was told of it, for nobody had asked to be told: the worker looks once more."""
    told, asked = workers.wake_below, list[int]()

    def late(worker_id: int, priority: int) -> Statement[bool]:
        asked.append(priority)
        if len(asked) > 1:
            return told(worker_id, priority)
        return Statement("wake_below", LATE, (worker_id, priority), is_any)

    monkeypatch.setattr(workers, "wake_below", late)
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)])
    async with db.database.transaction() as own:
        await own.execute("select pg_advisory_xact_lock(42)")
        begun = await rush.stand_still()

    async def is_claimed() -> bool:
        return rush.buffer.better_than(5) == 1

    await eventually(is_claimed)
    rush.go_on()

    async def has_begun() -> bool:
        return len(rush.begun) > begun

    await eventually(has_begun)
    assert rush.begun[begun] == "urgent"


async def test_what_was_announced_while_nobody_listened_is_looked_for(
    client: holdfast.Client, db: ThrowawayDatabase, rush: Rush, claimed: Any, eventually: Eventually
) -> None:
    """A connection that is lost takes announcements with it, and a failover what the worker has noted."""
    await client.enqueue_many([rush.step.job("low") for _ in range(3000)])
    await rush.stand_still()
    await eventually(lambda: db.value(BELOW))
    await db.fetch("update holdfast.workers set wakes_below = 0")
    urgent = await client.enqueue(rush.step.job("urgent"), priority=0)
    rush.process.worker.notified("reconnected", "")
    await claimed(urgent.id)
    await eventually(lambda: db.value(BELOW))
    rush.go_on()


class Watch:
    """A buffer with jobs of priority 5, and what may overtake them."""

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.overtaking = Overtaking(self.buffer, ("a", "b"))
        self.buffer.put(claimed_job(n) for n in range(10))

    def look(self, *, low: int = 0, found: int = 0, more: bool = False) -> tuple[int, tuple[str, ...]] | None:
        """Look if that is due; None: it is not."""
        if self.overtaking.pause(low) > 0:
            return None
        asked = self.overtaking.begin()
        self.buffer.put(claimed_job(100 + n, priority=0) for n in range(found))
        self.overtaking.end(found=bool(found), more=more)
        return asked


def claimed_job(number: int, priority: int = 5) -> ClaimedJob:
    """A job as a claim brings it."""
    return ClaimedJob(
        number, 1, 0, "kind", "a", priority, 5, 300.0, "{}", None, "{}", None, None, 0.0, 0.0, False, number
    )


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Whoever is called three times looks by itself, and looks are due at once."""
    monkeypatch.setattr(polling, "CALLS", 3)
    monkeypatch.setattr(polling, "WITHIN", 600.0)
    monkeypatch.setattr(polling, "PATIENCE", 600.0)
    monkeypatch.setattr(overtaking, "PACE", 0.0)
    return Watch()


async def test_only_what_is_more_urgent_than_something_here_is_looked_for(watch: Watch) -> None:
    """Where it was announced, and once."""
    watch.overtaking.call(5, {"a"})
    assert watch.look() is None
    watch.overtaking.call(4, {"b"})
    assert watch.look() == (5, ("b",))
    assert watch.look() is None
    watch.overtaking.call(0, None)
    assert watch.look() == (5, ("a", "b"))


async def test_more_is_looked_for_once_little_of_the_last_is_left(watch: Watch) -> None:
    """What is urgent is claimed no further ahead than anything else."""
    watch.overtaking.call(0, {"a"})
    assert watch.look(low=2, found=4, more=True) == (5, ("a",))
    assert watch.look(low=2) is None
    assert not watch.overtaking.has_room(2)
    await watch.buffer.take()
    assert not watch.overtaking.has_room(2)
    await watch.buffer.take()
    assert watch.overtaking.has_room(2)
    assert watch.look(low=2) == (5, ("a", "b"))
    assert not watch.overtaking.has_room(2)


async def test_a_worker_that_no_urgent_job_is_left_for_stops_asking(watch: Watch) -> None:
    """All low ones have begun: no end of a job is a reason to look any more."""
    watch.overtaking.call(0, {"a"})
    watch.look(low=2, found=4, more=True)
    assert watch.look(low=2) is None
    while len(watch.buffer):
        await watch.buffer.take()
    assert watch.look(low=2) is None
    watch.buffer.put([claimed_job(300)])
    assert not watch.overtaking.has_room(2)


async def test_a_call_is_not_forgotten_while_nothing_waits_here(watch: Watch) -> None:
    """The claim under way may bring only what is less urgent, of another queue."""
    while len(watch.buffer):
        await watch.buffer.take()
    watch.overtaking.call(0, {"b"})
    assert watch.look() is None
    watch.buffer.put([claimed_job(300)])
    assert watch.look() == (5, ("b",))


async def test_looks_in_vain_become_fewer(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight workers that are called for one job seven find nothing, and had better not hurry."""
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(overtaking, "time", clock)
    monkeypatch.setattr(overtaking, "PACE", 1.0)
    pauses = []
    for found in (0, 0, 0, 0, 1, 0):
        watch.overtaking.look_again()
        watch.overtaking.begin()
        watch.overtaking.end(found=bool(found), more=False)
        watch.overtaking.look_again()
        pauses.append(watch.overtaking.pause(0))
    assert pauses == [2.0, 4.0, 8.0, 8.0, 1.0, 2.0]


async def test_who_is_called_often_looks_by_itself(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """An announcement holds up everybody's commits; where nothing comes any more the worker is told again."""
    assert watch.overtaking.below == 5
    for _ in range(3):
        watch.overtaking.call(0, {"a"})
    assert watch.look() == (5, ("a",))
    assert watch.overtaking.below == 0
    assert watch.look(low=9, found=1) == (5, ("a", "b"))
    assert watch.overtaking.watches
    monkeypatch.setattr(polling, "PATIENCE", 0.0)
    assert watch.look(low=9) == (5, ("a", "b"))
    assert watch.overtaking.below == 5
    assert watch.look(low=9) is None


async def test_a_watch_goes_on_when_the_buffer_was_empty_for_a_while(watch: Watch) -> None:
    """Nobody tells the worker of anything then, so it must not forget to look."""
    for _ in range(3):
        watch.overtaking.call(0, {"a"})
    watch.look()
    while len(watch.buffer):
        await watch.buffer.take()
    assert watch.look() is None
    watch.buffer.put([claimed_job(200)])
    assert watch.look() == (5, ("a", "b"))


async def test_a_worker_is_told_less_only_where_it_was_called_in_vain(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says about itself is a write: what waits in its buffer may change with each claim."""
    # However slow this machine is: what was said was said a moment ago.
    monkeypatch.setattr(wake_level, "BUSY_BEFORE_AWAKE", 600.0)
    worker, here = await scene.worker(), [0]
    one = WakeLevel(scene.db.database, lambda: here[0])
    one.begin(worker)
    for here[0], is_more, noted in ((7, True, 7), (3, False, 7), (9, True, 9), (0, False, 9)):
        assert await one.heed() is is_more
        assert await scene.db.value(BELOW) == noted
    await one.called_in_vain()
    assert await scene.db.value(BELOW) == 9
    monkeypatch.setattr(wake_level, "BUSY_BEFORE_AWAKE", 0.0)
    await one.called_in_vain()
    assert await scene.db.value(BELOW) == 0
    await one.rest(found=False)
    assert await scene.db.value(BELOW) == ASLEEP
    here[0] = 4
    assert not await one.heed()
    await one.wake_up()
    assert await scene.db.value(BELOW) == 4


async def test_a_note_whose_answer_was_lost_is_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the worker takes itself for asleep, the database does not, and nobody tells it of anything."""
    one = WakeLevel(scene.db.database, lambda: 5)
    one.begin(await scene.worker())
    await one.rest(found=False)
    run = Database.run

    async def lost(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        await run(database, statement, *rest)
        monkeypatch.undo()
        raise DatabaseUnavailable("the connection broke")

    monkeypatch.setattr(Database, "run", lost)
    with pytest.raises(DatabaseUnavailable):
        await one.wake_up()
    assert await scene.db.value(BELOW) == 5
    await one.rest(found=False)
    assert await scene.db.value(BELOW) == ASLEEP


async def test_a_worker_takes_what_it_is_told_of_once_it_has_seen_what_nobody_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all that saw it awake have ended it looks once more; who runs is not asked at every job."""
    monkeypatch.setattr(wake_level, "SETTLED", 0.0)
    monkeypatch.setattr(wake_level, "LATE", 600.0)
    running, asked = workers.running_transactions, list[int]()

    def noted() -> Statement[tuple[int, int]]:
        asked.append(1)
        return running()

    monkeypatch.setattr(workers, "running_transactions", noted)
    one = WakeLevel(scene.db.database, lambda: 5)
    one.begin(await scene.worker())
    async with scene.db.database.transaction() as connection:
        await connection.execute("select pg_current_xact_id()")
        for _ in range(5):
            await one.rest(found=True)
            assert not one.is_told_of_all
    assert len(asked) == 1
    one._ask_at = 0.0
    for is_told_of_all in (False, True, True):
        await one.rest(found=True)
        assert one.is_told_of_all is is_told_of_all
    assert len(asked) == 2


def test_a_worker_that_falls_asleep_looks_at_least_once_a_second() -> None:
    """For as long as a transaction may have missed it; see `test_taking.py`."""
    assert max(*wake_level.LOOKS, wake_level.LATE) <= 1.0


@pytest.mark.parametrize("listens", [True, False], ids=["listens", "behind a pooler"])
async def test_who_cannot_be_told_asks_for_nothing_and_stays_close_to_its_slots(
    client: holdfast.Client,
    work: Any,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    listens: bool,
) -> None:
    """Announcements that nobody hears cost all the same; what is urgent waits for the next claim there."""
    app, timed, noted, go = holdfast.App(), list[float](), list[int](), asyncio.Event()
    told = workers.wake_below

    def wake_below(worker_id: int, priority: int) -> Statement[bool]:
        noted.append(priority)
        return told(worker_id, priority)

    monkeypatch.setattr(workers, "wake_below", wake_below)
    monkeypatch.setattr(Prefetch, "measure", lambda self: setattr(self, "room", 20))
    monkeypatch.setattr(Prefetch, "waited", lambda _self, seconds: timed.append(seconds))

    @app.job
    async def step() -> None:
        await go.wait()

    await client.enqueue_many([step.job() for _ in range(100)])
    process = await work(app, slots=2, database={"pgbouncer": not listens})
    # A turn that claimed ahead is over once another one has found no room.
    claims = process.worker.claimer
    await eventually(lambda: asyncio.sleep(0, len(claims._buffer) == 20))
    turned_at = claims.turned_at
    claims.wake()
    await eventually(lambda: asyncio.sleep(0, claims.turned_at > turned_at))
    assert (bool(timed), noted[:1]) == ((True, [5]) if listens else (False, []))
    go.set()
