"""Jobs of one concurrency key that a worker holds at once: one runs at a time, in order, and none is lost."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.model.job import ClaimedJob
from holdfast.rules.bundling import Bundling
from holdfast.store.attempts import Fence, Turn
from holdfast.testing import Probe
from holdfast.worker import claimer
from holdfast.worker.buffer import Buffer
from holdfast.worker.claimer import Claimer
from holdfast.worker.permits import Permits
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.running import Running
from holdfast.worker.sequences import Sequences
from tests.store.scene import Scene
from tests.store.test_limits import most_at_once
from tests.worker.handlers import SOON

KEYS, EACH = 6, 200
INTERVALS = """
    select j.concurrency_key, f.job_id, f.claimed_at, f.finished_at
    from holdfast.finished_jobs f join holdfast.jobs j on j.id = f.job_id where f.outcome = 'completed'
"""


class Diary:
    """Who began and ended, by key."""

    def __init__(self) -> None:
        self.running: dict[str, int] = defaultdict(int)
        self.order: dict[str, list[int]] = defaultdict(list)
        self.most = 0

    def begin(self, key: str, number: int) -> None:
        """A handler begins."""
        self.running[key] += 1
        self.most = max(self.most, self.running[key])
        self.order[key].append(number)

    def end(self, key: str) -> None:
        """A handler ends."""
        self.running[key] -= 1


async def ended(scene: Scene, eventually: Any) -> None:
    """Wait until no job is left."""
    await eventually(
        lambda: scene.db.value("select not exists (select from holdfast.unfinished_jobs)"), timeout=60
    )


async def recorded_at_once(scene: Scene) -> int:
    """How many jobs of a key ran at the worst moment, by what is recorded."""
    intervals: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *interval in await scene.db.fetch(INTERVALS):
        intervals[key].append(tuple(interval))
    return max(most_at_once(each) for each in intervals.values())


@pytest.mark.parametrize("is_async", [True, False])
async def test_few_keys_are_worked_through_in_order_by_few_claims(
    client: holdfast.Client, work: Any, scene: Scene, probe: Probe, eventually: Any, is_async: bool
) -> None:
    """No two of a key run at once, by the handlers' own count and by the recorded times."""
    app, diary = holdfast.App(), Diary()

    async def waits(key: str, number: int) -> None:
        diary.begin(key, number)
        await asyncio.sleep(0.001)
        diary.end(key)

    def sleeps(key: str, number: int) -> None:
        diary.begin(key, number)
        diary.end(key)

    kind: Any = app.job(kind="it")(waits if is_async else sleeps)
    await client.enqueue_many(
        kind.job(f"k{n % KEYS}", n).with_options(concurrency_key=f"k{n % KEYS}") for n in range(KEYS * EACH)
    )
    await work(app, slots=10)
    await ended(scene, eventually)
    assert diary.most == 1
    assert diary.order == {f"k{n}": list(range(n, KEYS * EACH, KEYS)) for n in range(KEYS)}
    assert await scene.db.value("select count(*) from holdfast.finished_jobs") == KEYS * EACH
    assert await recorded_at_once(scene) == 1
    assert len(probe.seen("jobs.claimed")) < EACH / 2


async def test_whatever_becomes_of_one_the_next_of_its_key_waits_for_its_end(
    client: holdfast.Client, work: Any, scene: Scene, eventually: Any
) -> None:
    """Some fail at first, snooze, save, answer, or end in transactions of their own, in two workers."""
    app, diary, chance = holdfast.App(), Diary(), random.Random(7)  # noqa: S311 - guards nothing

    @app.job(kind="it", retry=SOON)
    async def it(job: holdfast.Job, key: str, number: int, does: str) -> Any:
        diary.begin(key, number)
        await asyncio.sleep(0.001)
        if does == "save":
            await job.save_checkpoint({"at": number})
        if does == "write":
            async with job.transaction() as transaction:
                await transaction.execute("select 1")
                # What comes behind the block is not counted.
                diary.end(key)
            return None
        diary.end(key)
        if job.attempt == 1 and does == "fail":
            msg = "not yet"
            raise ValueError(msg)
        if job.attempt == 1 and does == "snooze":
            return holdfast.Snooze(0.0)
        return number if does == "answer" else None

    @app.job(kind="sync", retry=SOON)
    def sync(job: holdfast.Job, key: str, number: int) -> None:
        diary.begin(key, number)
        with job.transaction() as transaction:
            transaction.execute("select 1")
            diary.end(key)

    rare = ["fail", "snooze", "save", "write", "answer", "sync"]
    jobs = []
    for n in range(900):
        key, does = f"k{n % 5}", chance.choice(rare) if chance.random() < 0.1 else "nothing"
        job = sync.job(key, n) if does == "sync" else it.job(key, n, does)
        jobs.append(job.with_options(concurrency_key=key))
    await client.enqueue_many(jobs)
    for _ in range(2):
        await work(app, slots=10)
    await ended(scene, eventually)
    assert diary.most == 1
    assert (
        await scene.db.value("select count(*) from holdfast.finished_jobs where outcome = 'completed'") == 900
    )
    assert await recorded_at_once(scene) == 1


@pytest.fixture
def gate() -> SimpleNamespace:
    """A handler that notes who begins, and lets the first one wait."""
    app, order = holdfast.App(), list[int]()
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job(kind="it")
    async def it(number: int) -> None:
        order.append(number)
        begun.set()
        await go.wait()

    return SimpleNamespace(app=app, it=it, order=order, begun=begun, go=go)


HELD = "select count(*) from holdfast.unfinished_jobs where worker_id is not null"


@pytest.fixture
async def process(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    eventually: Any,
    gate: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """A worker that runs the first of five jobs of a key and has claimed the others at once."""
    # Before it knows its pace.
    monkeypatch.setattr(Prefetch, "in_a_row", 10)
    await client.enqueue_many((gate.it.job(n) for n in range(5)), concurrency_key="k")
    process = await work(gate.app, slots=10)
    await gate.begun.wait()
    await eventually(lambda: scene.db.value(f"{HELD} having count(*) = 5"))
    return process


async def test_the_next_begins_only_when_the_end_is_written(
    process: Any, scene: Scene, eventually: Any, gate: Any
) -> None:
    """Where both have rows of their own: meanwhile somebody has a lock on the first one's."""
    session = await scene.session()
    async with session.transaction():
        await scene.execute(
            session, "select job_id from holdfast.live_jobs where state = 'running' for update"
        )
        gate.go.set()
        async with asyncio.timeout(20):
            while process.worker.slots.done < 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        await scene.blocked()
        assert gate.order == [0]
    await ended(scene, eventually)
    assert gate.order == [0, 1, 2, 3, 4]


@pytest.fixture
def bundling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim puts what it can into a bundle."""
    monkeypatch.setattr(Bundling, "next_claim", lambda *_: True)


@pytest.mark.usefixtures("bundling")
async def test_in_a_bundle_nobody_waits_for_the_end_of_another_to_be_written(
    process: Any, scene: Scene, eventually: Any, gate: Any
) -> None:
    """All of them have run when the first end is written; what is recorded does not overlap."""
    session = await scene.session()
    async with session.transaction():
        assert await scene.execute(session, "select id from holdfast.bundles for update")
        gate.go.set()
        async with asyncio.timeout(20):
            while process.worker.slots.done < 5:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        await scene.blocked()
        assert await scene.db.value("select count(*) from holdfast.finished_jobs") == 0
    await ended(scene, eventually)
    assert gate.order == [0, 1, 2, 3, 4]
    assert await recorded_at_once(scene) == 1


async def test_a_claim_whose_jobs_mostly_wait_for_their_turn_is_followed_by_the_next(
    client: holdfast.Client, work: Any, scene: Scene, eventually: Any, gate: Any, monkeypatch: Any
) -> None:
    """It has read as far as it was to, and there may be more keys behind: who lacks keys does not rest."""

    async def rest(resting: Claimer, *, found: bool) -> float:
        await gate.go.wait()
        return await rest_after_all(resting, found=found)

    rest_after_all = Claimer._rest_after_all
    monkeypatch.setattr(Claimer, "_rest_after_all", rest)
    # Nothing is given back meanwhile.
    monkeypatch.setattr(claimer, "STALE", 60.0)
    monkeypatch.setattr(Prefetch, "in_a_row", 10)
    monkeypatch.setattr(Prefetch, "measure", lambda ahead: setattr(ahead, "room", 3000))
    jobs = (gate.it.job(n).with_options(concurrency_key=f"k{n // 10}") for n in range(2000))
    await client.enqueue_many(jobs)
    await work(gate.app, slots=50)
    await eventually(lambda: scene.db.value(f"{HELD} having count(*) > 1000"))
    gate.go.set()
    await ended(scene, eventually)
    assert sorted(gate.order) == list(range(2000))


async def test_a_worker_that_drains_gives_back_what_waits_for_its_turn(
    process: Any, scene: Scene, eventually: Any, gate: Any
) -> None:
    """Unspent, and without the end of the one that runs."""
    process.worker.drain()
    await eventually(lambda: scene.db.value(f"{HELD} having count(*) = 1"))
    gate.go.set()
    async with asyncio.timeout(20):
        await process.worker.held.wait_empty()
    left = await scene.db.fetch("select state, failures from holdfast.unfinished_jobs")
    assert left == [("available", 0)] * 4
    assert gate.order == [0]


async def test_what_waits_for_its_turn_survives_its_worker_unspent(
    process: Any, scene: Scene, lose: Any, eventually: Any, gate: Any
) -> None:
    """It had not begun: a rescue counts the one that ran, and another worker goes on in order."""
    old = process.worker.worker_id
    await lose()
    rescued = "select not exists (select from holdfast.unfinished_jobs where worker_id = $1)"
    await eventually(lambda: scene.db.value(rescued, old))
    gate.go.set()
    await ended(scene, eventually)
    counted = await scene.db.fetch("select job_id, failures from holdfast.finished_jobs order by job_id")
    assert [failures for _, failures in counted] == [1, 0, 0, 0, 0]
    assert sorted(set(gate.order)) == [0, 1, 2, 3, 4]


async def test_what_is_urgent_goes_before_others_of_its_key(
    client: holdfast.Client, process: Any, scene: Scene, eventually: Any, gate: Any
) -> None:
    """It waits for the one that runs, and for none of those that were claimed before it came."""
    await client.enqueue(gate.it.job(100), concurrency_key="k", priority=0)
    await eventually(lambda: scene.db.value(f"{HELD} having count(*) = 6"))
    async with asyncio.timeout(20):
        while len(process.worker.held.fences) < 6:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    gate.go.set()
    await ended(scene, eventually)
    assert gate.order == [0, 100, 1, 2, 3, 4]


async def test_a_limit_that_is_new_gives_nobody_two_turns_of_a_key(
    client: holdfast.Client, process: Any, scene: Scene, eventually: Any, gate: Any
) -> None:
    """The worker has not heard of it yet: a permit is no reason to begin beside another of the same key."""
    # By hand, so that it is not announced.
    await scene.db.fetch("update holdfast.queues set max_running = 5")
    await client.enqueue(gate.it.job(5), concurrency_key="other")
    async with asyncio.timeout(20):
        while 5 not in gate.order:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    assert gate.order == [0, 5]
    gate.go.set()
    await ended(scene, eventually)
    assert gate.order == [0, 5, 1, 2, 3, 4]
    assert process.worker.slots.done == 6


async def test_in_one_bundle_the_next_begins_before_the_end_is_written() -> None:
    """Elsewhere it has to wait, and so does whatever becomes of it, here too."""
    model, first, second, third = three_of_a_key()
    model.sequences.hand_on(first)
    assert taken(model.buffer) == [second]
    recorded = model.permits.unrecorded(second)
    assert recorded is not None
    assert not recorded.done()
    model.sequences.hand_on(second)
    assert taken(model.buffer) == []
    model.permits.forget([first, second])
    model.sequences.dropped([first, second])
    assert recorded.done()
    assert taken(model.buffer) == [third]
    assert model.permits.unrecorded(third) is None


async def test_a_turn_that_is_handed_on_wakes_no_slot_and_one_that_is_written_does() -> None:
    """The slot whose job has ended goes on itself; behind an end that had to be written none does."""
    model, first, second, third = three_of_a_key()
    idle = asyncio.create_task(model.buffer.take())
    await asyncio.sleep(0)
    model.sequences.hand_on(first)
    assert taken(model.buffer) == [second]
    now = time.monotonic()
    waited = model.buffer.hunger(now)
    assert model.buffer.hunger(now + 1.0) - waited == pytest.approx(1.0), "a slot was woken in vain"
    model.permits.forget([first, second])
    model.sequences.dropped([first, second])
    async with asyncio.timeout(10):
        assert (await idle)[2] == third


def test_who_has_as_many_keys_as_it_can_run_or_looked_in_vain_does_not_look_for_more() -> None:
    """Else it would take more than its share of scarce keys, or read the whole line again and again."""
    model = Model(0)
    begin, wait = model.sequences.admit([claimed_job(n, f"k{n % 3}", 5) for n in range(30)])
    model.buffer.put_ahead(wait)
    sequences = model.sequences
    sequences.brought(30, 31, slots=3, busy=3)
    assert not sequences.look_behind, "less than it wanted: there is no more"
    sequences.brought(30, 30, slots=3, busy=3)
    assert sequences.look_behind
    sequences.brought(0, 30, slots=3, busy=3)
    assert not sequences.look_behind
    sequences.brought(30, 30, slots=3, busy=3)
    assert not sequences.look_behind, "it has just looked in vain"
    model.buffer.put(begin)
    fresh = Sequences(model.buffer, model.permits, SimpleNamespace())
    fresh.brought(30, 30, slots=3, busy=3)
    assert not fresh.look_behind, "three wait for a slot"


def taken(buffer: Buffer) -> list[Fence]:
    """Take all that may begin."""
    return [entry[2] for entry in iter(buffer.pop, None)]


@pytest.mark.parametrize("by_clock", [True, False])
async def test_who_follows_one_that_is_not_told_exactly_is_told_from_then_on(by_clock: bool) -> None:
    """Written by a row of its own it may be told as late as it was written, and nothing overlaps."""
    permits, giver, heir = Permits(Buffer(), 10), Fence(1, 1), Fence(2, 1)
    permits.follow(giver, heir)
    running = Running.now(claimed_job(2, "k", 5))
    running.permit_recorded = permits.unrecorded(heir)
    # Until that is known, it is told with it, and no earlier than any end that is told with it.
    now = time.monotonic()
    assert running.turn(now) == Turn(running.began, True, 0.0)
    permits.forget([giver], by_clock=by_clock)
    assert running.permit_recorded is not None
    heard = running.permit_recorded.result().heard
    assert heard >= now
    assert running.turn(heard) == Turn(running.began if by_clock else heard, False, 0.0)


class Model:
    """A worker's buffer with sequences in it, beside what must be true of it."""

    def __init__(self, seed: int) -> None:
        self.chance, self.number = random.Random(seed), 0  # noqa: S311 - guards nothing
        self.tied: set[int] = set()
        self.buffer = Buffer()
        self.permits = Permits(self.buffer, 10)
        bundles: Any = SimpleNamespace(share=lambda one, other: {one, other} <= self.tied)
        self.sequences = Sequences(self.buffer, self.permits, bundles)
        # Of each key who waits, who leads and has not ended, and who has ended and is not written.
        self.jobs: dict[Fence, ClaimedJob] = {}
        self.begun, self.unwritten = list[Fence](), list[Fence]()
        self.ran, self.done = set[Fence](), set[int]()

    def claim(self) -> None:
        """A few jobs come, of one or two keys."""
        jobs = []
        for _ in range(self.chance.randint(1, 6)):
            self.number += 1
            key = self.chance.choice(["a", "b", None])
            if self.chance.random() < 0.6:
                self.tied.add(self.number)
            jobs.append(claimed_job(self.number, key, self.chance.choice([3, 5])))
        jobs.sort(key=lambda job: (job.priority, job.place))
        leading, waiting = self.sequences.admit(jobs)
        self.buffer.put_ahead(waiting)
        self.buffer.put(leading)
        self.jobs |= {Fence(job.id, job.attempt): job for job in jobs}

    def begin(self) -> None:
        """A slot takes one."""
        entry = self.buffer.pop()
        if entry is None:
            return
        fence, job = entry[2], entry[4]
        if job.key is not None:
            assert all(self.jobs[other].key != job.key for other in self.begun)
            before = [one for one in self.unwritten if one in self.ran and self.jobs[one].key == job.key]
            recorded = self.permits.unrecorded(fence)
            assert not before or (recorded is not None and not recorded.done())
        self.begun.append(fence)
        self.ran.add(fence)

    def end(self) -> None:
        """A handler completes, or comes to something else."""
        if self.begun:
            fence = self.begun.pop(self.chance.randrange(len(self.begun)))
            self.unwritten.append(fence)
            if self.chance.random() < 0.7:
                self.sequences.hand_on(fence)

    def write(self) -> None:
        """Some ends are written, in their order."""
        some, self.unwritten = self.unwritten[:3], self.unwritten[3:]
        self._drop(some)

    def give_up(self) -> None:
        """What waits goes back, in its turn among what is written."""
        given = self.buffer.give_up_of({"q"})
        self.unwritten += [Fence(job.id, job.attempt) for job in given]

    def _drop(self, fences: list[Fence]) -> None:
        self.permits.forget(fences)
        self.sequences.dropped(fences)
        self.done.update(fence.job_id for fence in fences)


def three_of_a_key() -> tuple[Model, Fence, Fence, Fence]:
    """Three jobs of a key are claimed, the first two into one bundle, and a slot has taken the first."""
    model = Model(0)
    model.tied |= {1, 2}
    begin, wait = model.sequences.admit([claimed_job(n, "k", 5) for n in (1, 2, 3)])
    model.buffer.put_ahead(wait)
    model.buffer.put(begin)
    first, second, third = Fence(1, 1), Fence(2, 1), Fence(3, 1)
    assert taken(model.buffer) == [first]
    return model, first, second, third


def claimed_job(number: int, key: str | None, priority: int) -> ClaimedJob:
    """A job as a claim brings it."""
    return ClaimedJob(
        number, 1, 0, "it", "q", priority, 3, 60.0, "{}", None, "{}", None, None, 0.0, 0.0, False,
        place=number, key=key,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
async def test_by_whatever_way_it_is_nobodys_turn_twice_and_nobody_is_forgotten(seed: int) -> None:
    """Claims, ends, writes and what is given back come in any order."""
    model = Model(seed)
    acts: list[Callable[[], None]] = [
        model.claim,
        model.begin,
        model.begin,
        model.end,
        model.end,
        model.write,
    ]
    for _ in range(400):
        model.chance.choice(acts)()
        if model.chance.random() < 0.02:
            model.give_up()
    for _ in range(3 * model.number):
        for act in (model.begin, model.end, model.write):
            act()
    assert model.done == set(range(1, model.number + 1))
    assert model.buffer.is_empty
    assert model.buffer.in_sequence == 0
    for kept in (model.buffer._lines, model.sequences._leaders):
        assert kept == {}
