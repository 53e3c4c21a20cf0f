"""Limits for a queue and for a concurrency key: exact, whoever races."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.client.operator import Operator
from holdfast.errors import DatabaseRefused
from holdfast.model.job import ClaimedJob, NewJob
from holdfast.store import attempts, counts, jobs, queues
from holdfast.store.attempts import Demand
from holdfast.store.database import Connection, Database
from tests.store.scene import KIND, Scene

RACERS = 6
HELD = (
    "select coalesce(concurrency_key, '-') from holdfast.live_jobs where worker_id is not null and queue = $1"
)
INTERVALS = "select job_id, claimed_at, finished_at from holdfast.finished_jobs where queue = $1"
READ = (
    "select sum(seq_scan), sum(idx_tup_fetch) from pg_stat_xact_user_tables "
    "where schemaname = $1 and relname in ('jobs', 'live_jobs')"
)


async def limit(scene: Scene, queue: str = "default", **columns: object) -> None:
    """Set the limits and the pause of a queue."""
    for column, value in columns.items():
        text = f"update holdfast.queues set {column} = $2 where name = $1"  # noqa: S608 - names from the tests
        await scene.db.fetch(text, queue, value)


def most_at_once(intervals: Sequence[tuple[Any, ...]]) -> int:
    """How many of the intervals overlap at the worst moment; one that ends as another begins does not."""
    moments = [(begin, 1) for _, begin, _ in intervals] + [(end, -1) for _, _, end in intervals]
    now = most = 0
    for _, step in sorted(moments, key=lambda moment: (moment[0], moment[1])):
        now += step
        most = max(most, now)
    return most


async def test_the_first_key_of_a_queue_holds_nobody_up(scene: Scene) -> None:
    """Its transaction may stay open for long: others enqueue, operators act, and the leader counts."""
    await scene.worker("default", "later")
    importer = await scene.session()
    async with importer.transaction():
        for queue in ("later", "default", "later"):
            keyed = NewJob(kind=KIND, args="{}", queue=queue, concurrency_key="k")
            await scene.run(jobs.enqueue_jobs([keyed]), importer)
        # However many jobs it enqueues, a queue is told of once.
        assert await importer.fetchval(f'select count(*) from "{scene.db.schema}".keyed_news') == 2  # noqa: S608
        async with asyncio.timeout(20):
            await scene.enqueue(concurrency_key="k")
            await scene.run(counts.count_jobs(await scene.lead(), 3600.0))
            await Operator(scene.db.database, "me").queues.pause("later")
        known = "select name, keyed from holdfast.queues order by name"
        assert await scene.db.fetch(known) == [("default", True), ("later", False)]
    assert await scene.db.fetch(known) == [("default", True), ("later", True)]
    assert await scene.db.value("select count(*) from holdfast.keyed_news") == 0


@pytest.mark.parametrize("becomes", ["kind = 'stranger'", "route_id = 1"])
async def test_a_keyed_job_that_is_replaced_while_it_is_chosen_is_looked_at_again(
    scene: Scene, becomes: str
) -> None:
    """It may have become one of a kind that the worker does not know, or one for a runner."""
    worker = await scene.worker()
    await scene.enqueue(concurrency_key="k")
    await limit(scene, keyed=True)
    session, claimer = await scene.session(), await scene.session()
    async with session.transaction():
        # Between the choice and the lock: only the lock has to wait for this one.
        await scene.execute(session, "lock table holdfast.live_jobs in exclusive mode")
        claiming = asyncio.create_task(scene.claim_limited(worker, free=1, connection=claimer))
        await scene.blocked(claimer)
        await scene.execute(session, f"update holdfast.live_jobs set {becomes}")  # noqa: S608 - from the parameters above
    assert await claiming == []
    assert await scene.db.value("select state from holdfast.live_jobs") == "available"


class Race:
    """Six workers with connections of their own claim and finish until a queue is empty."""

    def __init__(self, scene: Scene, jobs: int, queue: str = "default") -> None:
        self.scene, self.queue, self.left = scene, queue, jobs
        self.seen: list[Counter[str]] = []

    async def run(self) -> None:
        """Race until every job has finished."""
        sessions = [await self.scene.session() for _ in range(RACERS)]
        workers = [await self.scene.worker(self.queue) for _ in range(RACERS)]
        async with asyncio.timeout(60):
            await asyncio.gather(*map(self._work, sessions, workers))

    async def _work(self, session: Connection, worker: int) -> None:
        while self.left:
            async with session.transaction():
                claimed = await self.scene.claim_limited(worker, self.queue, free=5, connection=session)
                await self._look(session)
            await self.scene.complete(*claimed, connection=session)
            self.left -= len(claimed)

    async def _look(self, session: Connection) -> None:
        """Count what runs, inside the claim's transaction: nobody else can claim here meanwhile."""
        text = HELD.replace("holdfast.", f'"{self.scene.db.schema}".')
        self.seen.append(Counter(row[0] for row in await session.fetch(text, self.queue)))

    @property
    def most(self) -> int:
        """How many ran at once at the worst moment seen."""
        return max(sum(seen.values()) for seen in self.seen)

    def most_of(self, key: str) -> int:
        """How many of one key ran at once at the worst moment seen."""
        return max(seen[key] for seen in self.seen)


async def test_six_racers_never_exceed_a_limit_of_two(scene: Scene) -> None:
    """At every claim, and by the recorded times, at most two jobs of the queue run; and two do."""
    await scene.worker()
    await limit(scene, max_running=2)
    await scene.enqueue(120)
    race = Race(scene, 120)
    await race.run()
    assert race.most == 2
    assert most_at_once(await scene.db.fetch(INTERVALS, "default")) <= 2


@pytest.mark.parametrize("key_limit", [1, 3])
async def test_racers_never_exceed_the_limit_of_a_key(scene: Scene, key_limit: int) -> None:
    """Each concurrency key has the limit for itself, while jobs without a key know none."""
    await scene.worker()
    await limit(scene, key_limit=key_limit)
    for key in ("red", "blue", None):
        await scene.enqueue(30, concurrency_key=key)
    race = Race(scene, 90)
    await race.run()
    assert race.most_of("red") == race.most_of("blue") == key_limit
    assert race.most_of("-") > key_limit


async def test_a_queue_limit_holds_for_keyed_and_unkeyed_jobs_together(scene: Scene) -> None:
    """The fleet's limit counts every job of the queue, whatever its key allows."""
    await scene.worker()
    await limit(scene, max_running=3, key_limit=2)
    for key in ("red", "blue", None):
        await scene.enqueue(20, concurrency_key=key)
    race = Race(scene, 60)
    await race.run()
    assert race.most == 3
    assert race.most_of("red") <= 2
    assert race.most_of("blue") <= 2


async def test_a_limit_holds_where_transactions_are_repeatable_reads_by_default(scene: Scene) -> None:
    """The claim counts what others committed while it waited, even if the role's default is an older view."""
    name = await scene.db.value("select current_database()")
    await scene.db.fetch(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    pooled = Database(replace(scene.db.config, pgbouncer=True))
    try:
        await pooled.open()
        async with pooled.connection() as lent:
            assert await lent.fetchval("show default_transaction_isolation") == "repeatable read"
        async with pooled.transaction() as lent:
            assert await lent.fetchval("show transaction_isolation") == "read committed"
        worker = await scene.worker()
        one = Demand(worker_id=worker, queues=("default",), kinds=(KIND,), limit=1, free=1)
        claim = attempts.claim_limited(one)
        with pytest.raises(DatabaseRefused, match="read committed, not repeatable read"):
            await pooled.run(claim)
        await limit(scene, max_running=1)
        await scene.enqueue(2)
        first = await scene.session()
        async with first.transaction():
            assert len(await scene.claim_limited(worker, connection=first)) == 1
            later = asyncio.create_task(pooled.run_read_committed(claim))
            await scene.blocked()
        assert await later == []
        session = await scene.session()
        assert await session.fetchval("show transaction_isolation") == "read committed"
    finally:
        await pooled.close()
        await scene.db.fetch(f"alter database {name} reset default_transaction_isolation")


async def test_a_waiting_claim_counts_what_was_claimed_while_it_waited(scene: Scene) -> None:
    """The second claim waits for the first one's transaction and then finds the limit reached."""
    worker = await scene.worker()
    await limit(scene, max_running=1)
    await scene.enqueue(2)
    first, second = await scene.session(), await scene.session()
    transaction = first.transaction()
    await transaction.start()
    assert len(await scene.claim_limited(worker, connection=first)) == 1

    async def claim() -> list[ClaimedJob]:
        async with second.transaction():
            return await scene.claim_limited(worker, connection=second)

    later = asyncio.create_task(claim())
    await scene.blocked(second)
    await transaction.commit()
    assert await later == []


async def test_a_limit_changed_while_jobs_run_counts_from_the_next_claim(scene: Scene) -> None:
    """Lowering takes nothing away from what runs; raising lets more in at once."""
    worker = await scene.worker()
    await limit(scene, max_running=3)
    await scene.enqueue(10)
    running = await scene.claim_limited(worker)
    assert len(running) == 3
    await limit(scene, max_running=2)
    assert await scene.claim_limited(worker) == []
    await scene.complete(running[0])
    assert await scene.claim_limited(worker) == []
    await limit(scene, max_running=5)
    assert len(await scene.claim_limited(worker)) == 3


async def test_a_limit_of_zero_lets_nothing_in(scene: Scene) -> None:
    """Zero is a limit, not the lack of one, on both ways in."""
    worker = await scene.worker()
    await limit(scene, max_running=0)
    await scene.enqueue(2)
    await scene.enqueue(2, concurrency_key="red")
    assert await scene.claim_limited(worker) == []
    assert await scene.claim(worker) == []


async def test_a_limit_taken_away_opens_the_plain_way_again(scene: Scene) -> None:
    """Without a limit the queue is claimed in bulk, and the exact way in goes on to work."""
    worker = await scene.worker()
    await limit(scene, max_running=1)
    await scene.enqueue(8)
    assert await scene.claim(worker) == []
    await limit(scene, max_running=None)
    assert len(await scene.claim(worker, limit=4)) == 4
    assert len(await scene.claim_limited(worker)) == 4


async def test_a_paused_queue_with_a_limit_gives_nothing(scene: Scene) -> None:
    """Pause and limit do not get in each other's way."""
    worker = await scene.worker()
    await limit(scene, max_running=5, paused=True)
    await scene.enqueue(2)
    assert await scene.claim_limited(worker) == []
    await limit(scene, paused=False)
    assert len(await scene.claim_limited(worker)) == 2


async def test_priority_is_strict_across_keys(scene: Scene) -> None:
    """Where the queue has room for two, the two best jobs go, whatever their keys."""
    worker = await scene.worker()
    await limit(scene, max_running=2, key_limit=2)
    await scene.enqueue(concurrency_key="a", priority=7)
    best = await scene.enqueue(concurrency_key="z", priority=0)
    await scene.enqueue(priority=4)
    second = await scene.enqueue(concurrency_key="m", priority=2)
    assert [job.id for job in await scene.claim_limited(worker)] == best + second


async def test_a_busy_key_does_not_starve_a_free_one(scene: Scene) -> None:
    """A key at its limit with a long line ahead leaves the room to the others."""
    worker = await scene.worker()
    await scene.enqueue(500, concurrency_key="busy", priority=0)
    assert len(await scene.claim_limited(worker)) == 1
    waiting = await scene.enqueue(concurrency_key="free", priority=9)
    unkeyed = await scene.enqueue(priority=9)
    assert [job.id for job in await scene.claim_limited(worker)] == waiting + unkeyed
    assert await scene.claim_limited(worker) == []


async def test_a_keyed_job_in_a_queue_first_seen_is_never_claimed_the_plain_way(scene: Scene) -> None:
    """A worker on a queue that never had a key leaves a keyed job to the exact way in, and is told of it."""
    worker = await scene.worker("fresh")
    session = await scene.session()
    heard: asyncio.Queue[str] = asyncio.Queue()
    await session.add_listener(scene.db.schema, lambda *args: heard.put_nowait(args[-1]))
    assert [q.limited for q in await scene.run(queues.queue_limits(["fresh"]))] == [False]
    keyed = await scene.enqueue(3, queue="fresh", concurrency_key="red")
    plain = await scene.enqueue(queue="fresh")
    async with asyncio.timeout(10):
        while await heard.get() != "queues":
            pass
    assert [job.id for job in await scene.claim(worker, "fresh")] == plain
    assert [q.limited for q in await scene.run(queues.queue_limits(["fresh"]))] == [True]
    assert [job.id for job in await scene.claim_limited(worker, "fresh")] == keyed[:1]


async def test_a_held_key_counts_also_where_its_job_only_waits_in_a_buffer(scene: Scene) -> None:
    """What any worker holds uses up its key until it is given back or ends."""
    worker = await scene.worker()
    await scene.enqueue(2, concurrency_key="red")
    (held,) = await scene.claim_limited(worker)
    await scene.db.fetch("update holdfast.live_jobs set state = 'claimed' where job_id = $1", held.id)
    assert await scene.claim_limited(worker) == []
    await scene.lose(worker)
    other = await scene.worker()
    assert await scene.claim_limited(other) == []


async def test_jobs_with_keys_are_claimed_ahead_within_the_limit_of_each_key(scene: Scene) -> None:
    """The first ones run, the others wait in the buffer, and all of them count for their keys."""
    worker, other = await scene.worker(), await scene.worker()
    await limit(scene, key_limit=2)
    made = [(await scene.enqueue(concurrency_key=key))[0] for key in "aaabbbcd"]
    first_of_each = [made[n] for n in (0, 1, 3, 4, 6, 7)]
    claimed = await scene.claim_limited(worker, free=2, wanted=6)
    assert [(job.id, job.started) for job in claimed] == [(one, n < 2) for n, one in enumerate(first_of_each)]
    states = await scene.states()
    assert [states[one] for one in first_of_each] == ["running"] * 2 + ["claimed"] * 4
    assert await scene.claim_limited(other, free=2, wanted=6) == []
    await scene.complete(*claimed[:1])
    assert [job.id for job in await scene.claim_limited(other, free=1, wanted=6)] == [made[2]]


async def test_where_keys_are_scarce_a_worker_buffers_no_more_than_its_share(scene: Scene) -> None:
    """A buffer does not take every key while slots elsewhere stand empty; free slots take what there is."""
    worker, other, _elsewhere = await scene.worker(), await scene.worker(), await scene.worker("another")
    for n in range(40):
        await scene.enqueue(concurrency_key=str(n))
    assert len(await scene.claim_limited(worker, free=4, wanted=100)) == 20
    assert len(await scene.claim_limited(other, free=15, wanted=100)) == 15
    await scene.lose(other)
    assert len(await scene.claim_limited(worker, free=0, wanted=100)) == 5


async def test_nothing_is_claimed_ahead_under_a_limit_for_the_fleet(scene: Scene) -> None:
    """There a job that waits in a buffer would take the place of one that could run elsewhere."""
    worker = await scene.worker()
    await limit(scene, max_running=5)
    await scene.enqueue(4)
    await scene.enqueue(4, concurrency_key="red")
    claimed = await scene.claim_limited(worker, free=2, wanted=8)
    assert [job.started for job in claimed] == [True, True]
    # One may wait, for a worker whose slots others keep busy.
    assert [job.started for job in await scene.claim_limited(worker, free=0, wanted=8)] == [False]


@pytest.mark.parametrize("seed", range(12))
async def test_the_best_jobs_of_all_keys_are_claimed(scene: Scene, seed: int) -> None:
    """Whatever stands at the front: by priority, then the oldest, as many of each key as its limit leaves."""
    chance = random.Random(seed)  # noqa: S311 - a test's dice
    key_limit, free = chance.choice([1, 1, 2, 3]), chance.choice([1, 2, 5, 20])
    # Few keys fill the front of the line with jobs that have no room; many keys leave enough there.
    keys = [f"key {n}" for n in range(chance.choice([2, 10, 60]))]
    worker, session = await scene.worker(), await scene.session()
    # The choice must not hang on the order in which one plan or another gathers the jobs of a key.
    await session.execute(f"set enable_hashagg = {'on' if seed % 2 else 'off'}")
    await limit(scene, key_limit=key_limit)
    made = []
    for _ in range(chance.choice([20, 300])):
        some = chance.choice(keys[: max(1, len(keys) // chance.choice([1, 10]))])
        key, priority = chance.choice([some, some, None]), chance.choice([0, 5, 5, 5])
        made.append((priority, (await scene.enqueue(concurrency_key=key, priority=priority))[0], key))
    last = await scene.enqueue(concurrency_key="last", priority=9)
    left, running = [*sorted(made), (9, last[0], "last")], Counter[str]()
    while True:
        expected: list[int] = []
        for _, job_id, key in left:
            if len(expected) < free and (key is None or running[key] < key_limit):
                expected.append(job_id)
                running[key or ""] += 1
        assert [
            job.id for job in await scene.claim_limited(worker, free=free, connection=session)
        ] == expected
        if not expected:
            break
        left = [one for one in left if one[1] not in expected]


async def test_keys_with_room_are_found_behind_all_that_is_read_of_the_line(scene: Scene) -> None:
    """Each gets what its limit leaves beside what runs, and one whose limit was lowered gets nothing."""
    worker = await scene.worker()
    await limit(scene, key_limit=2)
    await scene.enqueue(2, concurrency_key="hot")
    [first] = await scene.enqueue(concurrency_key="part")
    assert len(await scene.claim_limited(worker, free=3)) == 3
    # Of 540 places at most is read what a claim for one slot wants.
    await scene.enqueue(600, concurrency_key="hot")
    second, third = await scene.enqueue(2, concurrency_key="part")
    free = await scene.enqueue(3, concurrency_key="free")
    assert [job.id for job in await scene.claim_limited(worker, free=1)] == [second]
    assert [job.id for job in await scene.claim_limited(worker, free=1)] == [free[0]]
    await limit(scene, key_limit=1)
    assert await scene.claim_limited(worker, free=1) == []
    await limit(scene, key_limit=2)
    assert [job.id for job in await scene.claim_limited(worker, free=1)] == [free[1]]
    assert await scene.claim_limited(worker, free=1) == []
    await limit(scene, key_limit=4)
    assert [job.id for job in await scene.claim_limited(worker, free=2)] == [4, 5]
    assert [first, third] == [3, 605]


async def test_a_locked_job_does_not_hold_up_its_key(scene: Scene) -> None:
    """Somebody's open transaction on the head of a key leaves the room to the next job of that key."""
    worker = await scene.worker()
    locked, following = await scene.enqueue(concurrency_key="a"), await scene.enqueue(concurrency_key="a")
    session = await scene.session()
    async with session.transaction():
        lock = f'select from "{scene.db.schema}".live_jobs where job_id = $1 for update'
        await session.fetch(lock, locked[0])
        assert [job.id for job in await scene.claim_limited(worker)] == following


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("(n % 50)::text", 1000),
        ("(n / 10)::text", 5000),
        ("case when n % 100 > 0 then 'hot' else n::text end", 5000),
    ],
)
async def test_claims_under_limits_read_by_index_only(scene: Scene, key: str, rows: int) -> None:
    """However the keys lie, and though it was planned on empty tables, no claim reads all of a line."""
    worker, session = await scene.worker(), await scene.session()
    await scene.claim_limited(worker, free=5, connection=session)
    await scene.db.fetch(
        f"select holdfast.enqueue('greet', concurrency_key => {key}) from generate_series(1, 20000) n"  # noqa: S608 - from above
    )
    for _ in range(3):
        async with session.transaction():
            claimed = await scene.claim_limited(worker, free=20, connection=session)
            scans, fetched = await session.fetchrow(READ, scene.db.schema) or (None, None)
        assert len(claimed) == 20
        assert scans == 0
        assert fetched is not None
        assert fetched < rows
        await scene.complete(*claimed)


async def test_where_keys_come_in_turn_half_of_what_is_wanted_is_not_looked_for_further(scene: Scene) -> None:
    """The rest of the line has the same keys again, and none of them is free."""
    worker, session = await scene.worker(), await scene.session()
    await scene.db.fetch(
        "select holdfast.enqueue('greet', concurrency_key => (n % 100)::text) from generate_series(1, 5000) n"
    )
    assert len(await scene.claim_limited(worker, free=0, wanted=75)) == 75
    async with session.transaction():
        claimed = await scene.claim_limited(worker, free=0, wanted=50, connection=session)
        _, fetched = await session.fetchrow(READ, scene.db.schema) or (None, None)
    assert len(claimed) == 25
    assert fetched is not None
    assert fetched < 500


async def test_a_thousand_keys_are_claimed_in_good_time(scene: Scene) -> None:
    """The cost goes with the keys, not with the jobs: 20,000 jobs of 1,000 keys, one claim of 100."""
    worker = await scene.worker()
    await scene.db.fetch(
        "select holdfast.enqueue('greet', concurrency_key => (n % 1000)::text) "
        "from generate_series(1, 20000) n"
    )
    took = list[float]()
    # A full machine may hold up one or two of them.
    while len(took) < 3 and min(took, default=2.0) >= 2:
        began = time.monotonic()
        claimed = await scene.claim_limited(worker, free=100)
        took.append(time.monotonic() - began)
        assert len(claimed) == 100
    assert min(took) < 2


def test_overlaps_are_counted_as_they_are() -> None:
    """The measure of the race itself: touching intervals do not overlap, nested ones do."""
    assert most_at_once([(1, 0, 2), (2, 2, 4)]) == 1
    assert most_at_once([(1, 0, 9), (2, 1, 2), (3, 1, 3), (4, 4, 5)]) == 3
