"""Who is woken by an enqueue: who sleeps or holds worse jobs of that queue, once a statement, nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome, PutBack
from holdfast.store import attempts, bulk, jobs, leader, workers
from holdfast.store.attempts import Returned
from holdfast.store.incoming import Incoming
from holdfast.store.sqlfile import rendered
from holdfast.store.workers import ASLEEP
from tests.store.scene import KIND, Scene, fence

END = "end"


async def test_the_newest_transaction_is_one_of_those_that_run(scene: Scene) -> None:
    """Nothing has ended since it began, so a snapshot says nothing of it; who falls asleep has to know."""
    late = await scene.session()
    transaction = late.transaction()
    await transaction.start()
    number = await late.fetchval("select pg_current_xact_id()::text::bigint")
    oldest, following = await scene.run(workers.running_transactions())
    assert oldest <= number < following
    await transaction.rollback()


class Ear:
    """Hears everything on the schema's channel."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    async def open(self) -> Ear:
        """Begin to listen."""
        session = await self.scene.session()
        await session.add_listener(self.scene.db.schema, lambda *args: self.heard.put_nowait(args[-1]))
        return self

    async def all(self) -> list[str]:
        """Everything heard so far: notifications come in the order of their commits, and the last is ours."""
        await self.scene.db.fetch("select pg_notify('holdfast', $1)", END)
        found = []
        async with asyncio.timeout(10):
            while (payload := await self.heard.get()) != END:
                found.append(payload)
        return found


@pytest.fixture
async def ear(scene: Scene) -> Ear:
    """A listener on the schema of the test."""
    return await Ear(scene).open()


async def asleep(scene: Scene, *queues: str) -> int:
    """A worker that waits to be woken."""
    worker = await scene.worker(*queues)
    await scene.run(workers.wake_below(worker, ASLEEP))
    return worker


@pytest.mark.parametrize("kinds", [[KIND], [KIND, KIND], [KIND, "another"]], ids=["one", "alike", "unlike"])
async def test_an_enqueue_wakes_who_fell_asleep_after_its_snapshot(
    scene: Scene, ear: Ear, kinds: list[str]
) -> None:
    """At repeatable read the note cannot be seen, so it is taken for granted."""
    new = [NewJob(kind=kind, args="{}", queue="other") for kind in kinds]
    session = await scene.session()
    async with session.transaction(isolation="repeatable_read"):
        await session.execute("select count(*) from pg_class")
        await asleep(scene, "other")
        ids = [handle.id for handle in await scene.run_on(session, jobs.enqueue_jobs(new))]
    assert await ear.all() == [f"job:{ids[0]}:5:other" if len(ids) == 1 else "jobs:5:other"]


async def test_an_enqueue_wakes_a_sleeper_on_its_queue(scene: Scene, ear: Ear) -> None:
    """It names the queue, so that only its workers look, and the job, so that they need look for no other."""
    await asleep(scene, "mail", "other")
    [job] = await scene.enqueue(queue="mail")
    assert await ear.all() == [f"job:{job}:5:mail"]


async def test_jobs_of_one_transaction_are_told_of_together(scene: Scene, ear: Ear) -> None:
    """The first by its number, all others in one notification; none by it that comes after another write."""
    await asleep(scene, "mail")
    new = jobs.enqueue_jobs([NewJob(kind=KIND, args="{}", queue="mail")])
    session = await scene.session()
    async with session.transaction():
        [first], *_ = [await scene.run_on(session, new) for _ in range(20)]
    assert await ear.all() == [f"job:{first.id}:5:mail", "jobs:5:mail"]
    async with session.transaction():
        await scene.execute(session, "update holdfast.queues set paused = false")
        await scene.run_on(session, new)
    assert await ear.all() == ["jobs:5:mail"]


async def test_nobody_is_told_where_nobody_sleeps(scene: Scene, ear: Ear) -> None:
    """Busy workers look anyway, and a notification costs a lock on the whole database."""
    await scene.worker("mail")
    await asleep(scene, "other")
    await scene.enqueue(queue="mail")
    await scene.enqueue(queue="nobody")
    assert await ear.all() == []


@pytest.mark.parametrize("state", ["draining", "offline", "lost"])
async def test_a_worker_that_takes_nothing_is_not_woken(scene: Scene, ear: Ear, state: str) -> None:
    """Only workers that may claim are worth a notification."""
    await asleep(scene, "mail")
    await scene.db.fetch("update holdfast.workers set state = $1", state)
    await scene.enqueue(queue="mail")
    assert await ear.all() == []


async def test_a_statement_notifies_once(scene: Scene, ear: Ear) -> None:
    """A hundred jobs in three queues make one notification that names the queues where somebody sleeps."""
    await asleep(scene, "a", "b")
    batch = [NewJob(kind=KIND, args="{}", queue=queue) for queue in ("b", "a", "c") * 33]
    await scene.run(jobs.enqueue_jobs(batch))
    assert await ear.all() == ["jobs:5:a,b"]


async def test_plain_sql_in_bulk_notifies_once(scene: Scene, ear: Ear) -> None:
    """PostgreSQL sends equal notifications of one transaction once."""
    await asleep(scene, "mail")
    await scene.db.fetch("select holdfast.enqueue('greet', queue => 'mail') from generate_series(1, 50)")
    assert await ear.all() == ["jobs:5:mail"]


async def test_nothing_is_told_before_the_commit_or_after_a_rollback(scene: Scene, ear: Ear) -> None:
    """A worker that looked too early would find nothing."""
    await asleep(scene, "mail")
    session = await scene.session()
    new = jobs.enqueue_jobs([NewJob(kind=KIND, args="{}", queue="mail")])
    transaction = session.transaction()
    await transaction.start()
    [job] = await scene.run_on(session, new)
    assert await ear.all() == []
    await transaction.commit()
    assert await ear.all() == [f"job:{job.id}:5:mail"]
    transaction = session.transaction()
    await transaction.start()
    await scene.run_on(session, new)
    await transaction.rollback()
    assert await ear.all() == []


async def test_a_paused_queue_wakes_its_sleepers_too(scene: Scene, ear: Ear) -> None:
    """Its resume may commit first and find nothing: the notification is what brings the job out then."""
    await asleep(scene, "mail")
    await scene.db.fetch("update holdfast.queues set paused = true")
    [job] = await scene.enqueue(queue="mail")
    assert await ear.all() == [f"job:{job}:5:mail"]


@pytest.mark.parametrize(("letter", "count"), [("q", 120), ("ü", 100), ("🦑", 100)])
async def test_more_queue_names_than_a_payload_holds_wake_everybody(
    scene: Scene, ear: Ear, letter: str, count: int
) -> None:
    """A payload has room for 8000 bytes, however few characters those are: past that all are told to look."""
    names = tuple(f"{letter * 60}{n:03}" for n in range(count))
    await asleep(scene, *names)
    await scene.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}", queue=name) for name in names]))
    assert await ear.all() == ["jobs:5:*"]


async def test_a_queue_name_with_a_comma_wakes_everybody(scene: Scene, ear: Ear) -> None:
    """Names are told apart by commas; where that fails nobody is left asleep."""
    await asleep(scene, "a,b")
    [job] = await scene.enqueue(queue="a,b")
    assert await ear.all() == [f"job:{job}:5:*"]


async def test_a_trigger_wakes_like_any_enqueue(scene: Scene, ear: Ear) -> None:
    """A job that comes from a table of the application is not found by polling only."""
    await asleep(scene, "mail")
    async with scene.db.database.connection() as connection:
        await connection.execute(f"""
            create table "{scene.db.schema}".orders (id integer);
            create function "{scene.db.schema}".on_order() returns trigger language plpgsql as $$
            begin perform "{scene.db.schema}".enqueue('greet', queue => 'mail'); return null; end $$;
            create trigger t after insert on "{scene.db.schema}".orders
            for each row execute function "{scene.db.schema}".on_order()""")
    await scene.db.fetch("insert into holdfast.orders select generate_series(1, 20)")
    assert await ear.all() == ["jobs:5:mail"]


@pytest.mark.parametrize(("delay", "told"), [(1.0, ["stage"]), (3600.0, [])], ids=["soon", "later"])
async def test_a_job_due_soon_wakes_the_leader_and_nobody_else(
    scene: Scene, ear: Ear, delay: float, told: list[str]
) -> None:
    """The leader looks every 5 s anyway; workers are woken when the job is staged."""
    await asleep(scene)
    await scene.enqueue(3, delay=delay)
    assert await ear.all() == told


async def test_jobs_that_come_by_copy_wake_like_others(scene: Scene, ear: Ear) -> None:
    """One notification for the queues that have something to claim, and one for the leader."""
    await asleep(scene, "now", "later")
    batch = [NewJob(kind=KIND, args="{}", queue="now")] * 20
    batch += [NewJob(kind=KIND, args="{}", queue="later", delay=1.0)] * 20
    async with scene.db.database.transaction() as own:
        await bulk.copy_jobs(own, scene.db.schema, Incoming(batch))
    assert await ear.all() == ["jobs:5:now", "stage"]


async def test_staging_putting_back_and_rescue_wake_sleepers(scene: Scene, ear: Ear) -> None:
    """Whatever makes a job available tells of it."""
    holder, term = await scene.worker("mail"), await scene.lead()
    await asleep(scene, "mail", "default")
    await scene.enqueue(run_at=datetime(2099, 1, 1, tzinfo=UTC))
    await scene.db.fetch("update holdfast.live_jobs set run_at = '2001-01-01'")
    await scene.run(leader.stage_jobs(term, 10))
    assert await ear.all() == ["jobs:5:default"]
    (job,) = await scene.claim(holder)
    release = PutBack(Outcome.RELEASED, 0, counts=False, reason="r")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), release)]))
    assert await ear.all() == ["jobs:5:default"]
    await scene.claim(holder)
    await scene.lose(holder)
    await scene.run(workers.rescue_jobs(term, 10))
    assert await ear.all() == ["jobs:5:default"]


async def test_a_rescue_that_ends_a_job_wakes_sleepers_too(scene: Scene, ear: Ear) -> None:
    """There may be room under a limit by it, for a job that nobody else tells them of."""
    holder, term = await scene.worker("mail"), await scene.lead()
    await scene.enqueue(queue="mail", max_attempts=1)
    await scene.claim(holder, "mail")
    await asleep(scene, "mail")
    await scene.lose(holder)
    assert [one.fate for one in await scene.run(workers.rescue_jobs(term, 10))] == ["failed"]
    assert await ear.all() == ["jobs:9:mail"]


async def test_a_run_that_a_claim_passed_over_is_told_of_again(scene: Scene, ear: Ear) -> None:
    """A signal locks its run until the commit, also one that is there to be claimed: then it tells of it."""
    await asleep(scene, "default")
    [run] = await scene.enqueue()
    assert await ear.all() == [f"job:{run}:5:default"]
    claimer, sender = await scene.worker(), await scene.session()
    async with sender.transaction():
        await sender.execute(rendered(f"select holdfast.send_signal({run}, 'go')", scene.db.schema))
        await sender.execute("set constraints all immediate")
        assert await scene.claim(claimer) == []
        assert await ear.all() == []
    assert await ear.all() == ["jobs:5:default"]
    assert [job.id for job in await scene.claim(claimer)] == [run]
    await scene.db.fetch("select holdfast.send_signal($1::bigint, 'go')", run)
    assert await ear.all() == []


async def by_statement(scene: Scene, priority: int) -> None:
    """One job."""
    await scene.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}", queue="mail", priority=priority)]))


async def by_function(scene: Scene, priority: int) -> None:
    """Several jobs, the best of them of this priority but for one that is not due."""
    new = [NewJob(kind=KIND, args="{}", queue="mail", priority=one) for one in (9, priority)]
    new.append(NewJob(kind=KIND, args="{}", queue="mail", priority=0, delay=3600.0))
    await scene.run(jobs.enqueue_jobs(new))


async def by_copy(scene: Scene, priority: int) -> None:
    """Many jobs, the best of them of this priority but for one that is not due."""
    new = [NewJob(kind=KIND, args="{}", queue="mail", priority=one) for one in (9, priority)] * 20
    new.append(NewJob(kind=KIND, args="{}", queue="mail", priority=0, delay=3600.0))
    async with scene.db.database.transaction() as own:
        await bulk.copy_jobs(own, scene.db.schema, Incoming(new))


async def by_sql(scene: Scene, priority: int) -> None:
    """The function for everybody, with a unique key."""
    await scene.db.fetch(
        "select holdfast.enqueue('greet', queue => 'mail', priority => $1::integer, unique_key => $2)",
        priority,
        str(priority),
    )


async def by_stager(scene: Scene, priority: int) -> None:
    """A job that falls due."""
    term = await scene.lead()
    new = NewJob(
        kind=KIND, args="{}", queue="mail", priority=priority, run_at=datetime(2099, 1, 1, tzinfo=UTC)
    )
    await scene.run(jobs.enqueue_jobs([new]))
    await scene.db.fetch("update holdfast.live_jobs set run_at = '2001-01-01' where state = 'scheduled'")
    await scene.run(leader.stage_jobs(term, 10))


async def by_release(scene: Scene, priority: int) -> None:
    """A job that comes back; the worker that had it is gone before anybody is told of anything."""
    holder = await scene.worker("mail")
    await scene.db.fetch("update holdfast.workers set wakes_below = 0")
    await scene.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}", queue="mail", priority=priority)]))
    (job,) = await scene.claim(holder, "mail")
    await scene.db.fetch("update holdfast.workers set wakes_below = 5")
    release = PutBack(Outcome.RELEASED, 0, counts=False, reason="r")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), release)]))
    await scene.db.fetch("delete from holdfast.live_jobs")


WAYS = (by_statement, by_function, by_copy, by_sql, by_stager, by_release)


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_who_has_claimed_ahead_is_told_of_what_is_more_urgent(
    scene: Scene, ear: Ear, way: Callable[[Scene, int], Awaitable[None]]
) -> None:
    """And of nothing that would wait behind all of that: a notification costs a lock on the database."""
    await scene.run(workers.wake_below(await scene.worker("mail"), 5))
    await way(scene, 5)
    assert await ear.all() == []
    await way(scene, 4)
    assert [payload.split(":")[-2:] for payload in await ear.all()] == [["4", "mail"]]


async def test_waking_up_is_said_once(scene: Scene) -> None:
    """Saying again what is said already writes nothing, so idle turns cost no row versions."""
    worker = await asleep(scene)
    version: Any = "select xmin::text from holdfast.workers"
    before = await scene.db.value(version)
    assert await scene.run(workers.wake_below(worker, ASLEEP)) is False
    assert await scene.db.value(version) == before
    assert await scene.run(workers.wake_below(worker, 0)) is True
