"""One live job for each unique key: keep, replace, reject, and sessions that race for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import DuplicateJob
from holdfast.model.job import Enqueued, JobHandle, NewJob, UniquePolicy
from holdfast.model.outcome import Fail, Outcome, PutBack
from holdfast.rules import outcome as decide
from holdfast.store import attempts, checkpoints, jobs
from holdfast.store.attempts import Ended, Returned
from holdfast.store.database import Connection
from tests.store.scene import KIND, Scene, fence

KEEP, REPLACE, REJECT = UniquePolicy.KEEP, UniquePolicy.REPLACE, UniquePolicy.REJECT
LATER = datetime(2099, 1, 1, tzinfo=UTC)


async def put(
    scene: Scene, *, policy: UniquePolicy = KEEP, connection: Connection | None = None, **options: Any
) -> JobHandle:
    """Enqueue one job under the key ``u``."""
    new = NewJob(**({"kind": KIND, "args": "{}", "unique_key": "u", "unique_policy": policy} | options))
    return (await scene.run(jobs.enqueue_jobs([new]), connection))[0]


async def test_keep_answers_the_job_that_lives(scene: Scene) -> None:
    """The second enqueue makes nothing and says so."""
    first = await put(scene)
    second = await put(scene, args='{"n": 2}')
    assert second == JobHandle(first.id, Enqueued.KEPT)
    assert await scene.db.fetch("select id, args::text from holdfast.jobs") == [(first.id, "{}")]


async def test_reject_names_the_job_and_the_key_and_makes_nothing(scene: Scene) -> None:
    """The error carries both, and the rest of the batch is not enqueued either."""
    first = await put(scene)
    batch = [
        NewJob(kind=KIND, args="{}"),
        NewJob(kind=KIND, args="{}", unique_key="u", unique_policy=REJECT),
    ]
    with pytest.raises(DuplicateJob, match=f"job {first.id} already holds unique key 'u'") as refused:
        await scene.run(jobs.enqueue_jobs(batch))
    assert (refused.value.job_id, refused.value.unique_key) == (first.id, "u")
    assert list(await scene.states()) == [first.id]


@pytest.mark.parametrize("run_at", [None, LATER], ids=["available", "scheduled"])
async def test_replace_rewrites_a_job_that_is_still_queued(scene: Scene, run_at: datetime | None) -> None:
    """Arguments, queue, priority, time and all options become the new ones; the id stays."""
    first = await put(scene, run_at=run_at, max_attempts=2, tags=["old"])
    second = await put(
        scene,
        policy=REPLACE,
        args='{"n": 2}',
        kind="other",
        queue="urgent",
        priority=0,
        max_attempts=9,
        timeout=7.0,
        retry='{"kind": "constant", "delay": 1}',
        concurrency_key="c",
        tags=["new", 'a "b", c'],
        meta='{"m": 1}',
        parent_id=77,
        trace="t",
        run_at=LATER + timedelta(days=1),
    )
    assert second == JobHandle(first.id, Enqueued.REPLACED)
    assert await scene.db.fetch(
        "select kind, queue, priority, args::text, max_attempts, timeout, retry ->> 'kind', "
        "concurrency_key, tags, meta::text, parent_id, trace from holdfast.jobs"
    ) == [
        ("other", "urgent", 0, '{"n": 2}', 9, 7.0, "constant", "c", ["new", 'a "b", c'], '{"m": 1}', 77, "t")
    ]
    assert await scene.db.fetch(
        "select kind, queue, priority, state, run_at, concurrency_key from holdfast.live_jobs"
    ) == [("other", "urgent", 0, "scheduled", LATER + timedelta(days=1), "c")]
    assert await scene.db.value("select keyed from holdfast.queues where name = 'urgent'")


async def test_replace_brings_a_scheduled_job_forward(scene: Scene) -> None:
    """A job that waited for a far day may be claimed at once, with its new arguments."""
    first = await put(scene, run_at=LATER)
    await put(scene, policy=REPLACE, args='{"n": 2}')
    (claimed,) = await scene.claim(await scene.worker())
    assert (claimed.id, claimed.args) == (first.id, '{"n": 2}')


async def test_replace_of_a_retried_job_begins_its_failures_anew_but_not_its_attempts(scene: Scene) -> None:
    """What was asked is new, so its failures are; the attempt number is a fence and only grows."""
    await put(scene)
    worker = await scene.worker()
    (job,) = await scene.claim(worker)
    decision = PutBack(Outcome.RETRIED, 60.0, counts=True, reason="no")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), decision)]))
    assert (await put(scene, policy=REPLACE)).status is Enqueued.REPLACED
    (again,) = await scene.claim(worker)
    assert (again.id, again.attempt, again.failures) == (job.id, 2, 0)


async def test_replace_forgets_where_the_former_job_was(scene: Scene) -> None:
    """A checkpoint is of other arguments."""
    await put(scene)
    (job,) = await scene.claim(await scene.worker())
    await scene.run(checkpoints.save_checkpoint(fence(job), 1, '{"offset": 1000}'))
    await scene.run(attempts.put_back_jobs([Returned(fence(job), decide.snoozed(60.0, "later"))]))
    assert (await put(scene, policy=REPLACE)).status is Enqueued.REPLACED
    assert await scene.run(checkpoints.load_checkpoint(job.id)) is None


async def test_replace_keeps_a_run_that_remembers_something(scene: Scene) -> None:
    """It would be answered with what was recorded for other arguments."""
    handle = await put(scene, policy=REPLACE)
    await scene.db.fetch(
        "insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, started_at) "
        "values ($1, 'main', 0, 'charge', 'step', 'completed', 1, holdfast.now())",
        handle.id,
    )
    before = await scene.db.fetch("select * from holdfast.jobs")
    assert (await put(scene, policy=REPLACE)).status is Enqueued.KEPT
    assert await scene.db.fetch("select * from holdfast.jobs") == before


@pytest.mark.parametrize("free", [1, 0], ids=["running", "buffered"])
async def test_replace_keeps_a_job_that_is_held(scene: Scene, free: int) -> None:
    """What a worker holds is not changed under its hands: the enqueue answers that it was kept."""
    first = await put(scene)
    await scene.claim(await scene.worker(), limit=1, free=free)
    before = await scene.dump()
    second = await put(scene, policy=REPLACE, args='{"n": 2}')
    assert second == JobHandle(first.id, Enqueued.KEPT)
    assert await scene.dump() == before


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_a_key_is_free_again_once_its_job_has_ended(scene: Scene, how: str) -> None:
    """Uniqueness holds among live jobs only."""
    first = await put(scene)
    (job,) = await scene.claim(await scene.worker())
    if how == "completed":
        await scene.complete(job)
    elif how == "failed":
        await scene.run(attempts.finish_jobs([Ended(fence(job), Fail("e", "r"))]))
    else:
        await scene.db.fetch("update holdfast.live_jobs set cancel_requested_at = holdfast.now()")
        decision = PutBack(Outcome.RETRIED, 0, counts=True, reason="stopped")
        await scene.run(attempts.put_back_jobs([Returned(fence(job), decision)]))
    assert (await scene.states())[first.id] == how
    assert (await put(scene, policy=REJECT)).status is Enqueued.NEW


async def test_a_key_twice_in_one_batch_makes_one_job(scene: Scene) -> None:
    """Answers come in the order asked, and so do the ids of new jobs, whatever the order of their keys."""
    batch = [NewJob(kind=KIND, args="{}", unique_key=key) for key in ("z", "a", "z", "m")]
    handles = await scene.run(jobs.enqueue_jobs([*batch, NewJob(kind=KIND, args="{}")]))
    assert [handle.status for handle in handles] == ["new", "new", "kept", "new", "new"]
    z, a, again, m, plain = [handle.id for handle in handles]
    assert again == z
    assert z < a < m < plain


async def put_batch(
    scene: Scene, *asked: tuple[str, UniquePolicy], connection: Connection | None = None
) -> Any:
    """Enqueue several jobs, each with its place in the batch as its argument; answers ids and statuses."""
    batch = [
        NewJob(kind=KIND, args=f'{{"n": {n}}}', unique_key=key, unique_policy=policy)
        for n, (key, policy) in enumerate(asked)
    ]
    return await scene.run(jobs.enqueue_jobs(batch), connection)


async def test_of_a_batch_some_are_new_and_some_are_kept(scene: Scene) -> None:
    """A key that somebody holds is no reason to leave the others out, and costs no id's order."""
    await put_batch(scene, ("u", KEEP), ("v", KEEP))
    handles = await put_batch(scene, ("w", KEEP), ("v", KEEP), ("a", REPLACE), ("w", KEEP), ("b", REJECT))
    assert [handle.status for handle in handles] == ["new", "kept", "new", "kept", "new"]
    assert handles[0].id < handles[2].id < handles[4].id
    rows = await scene.db.fetch(
        "select l.unique_key, j.unique_key, args::text from holdfast.live_jobs l"
        " join holdfast.jobs j on j.id = l.job_id order by 1"
    )
    assert [row[0] for row in rows] == [row[1] for row in rows] == ["a", "b", "u", "v", "w"]
    assert [row[2] for row in rows] == [f'{{"n": {n}}}' for n in (2, 4, 0, 1, 0)]


async def test_of_a_batch_the_last_replace_of_a_key_stands(scene: Scene) -> None:
    """Also where the job that it replaces is of the same batch."""
    await put_batch(scene, ("u", KEEP))
    handles = await put_batch(scene, ("u", REPLACE), ("n", REPLACE), ("u", REPLACE), ("n", REPLACE))
    assert [handle.status for handle in handles] == ["replaced", "new", "replaced", "replaced"]
    rows = await scene.db.fetch("select unique_key, args::text from holdfast.jobs order by 1")
    assert rows == [("n", '{"n": 3}'), ("u", '{"n": 2}')]


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_batch_waits_for_a_key_of_somebody_else_and_goes_in_once(scene: Scene, end: str) -> None:
    """What it had put in before it met the key is not there twice, nor is it lost."""
    first, second = await scene.session(), await scene.session()
    transaction = first.transaction()
    await transaction.start()
    made = await put(scene, connection=first)
    later = asyncio.create_task(
        put_batch(scene, ("a", KEEP), ("u", KEEP), ("z", KEEP), ("u", KEEP), connection=second)
    )
    await scene.blocked(second)
    await (transaction.commit() if end == "commit" else transaction.rollback())
    a, u, z, again = await later
    assert (a.status, z.status, again) == ("new", "new", JobHandle(u.id, Enqueued.KEPT))
    assert (u.status, u.id == made.id) == (("kept", True) if end == "commit" else ("new", False))
    assert sorted(await scene.states()) == sorted({a.id, u.id, z.id})
    assert await scene.db.value("select count(*) from holdfast.jobs") == 3


async def test_of_many_sessions_that_race_for_a_key_one_makes_the_job(scene: Scene) -> None:
    """Twelve sessions enqueue under one key at once: one is new, all others are told of it."""
    sessions = [await scene.session() for _ in range(12)]
    handles = await asyncio.gather(*(put(scene, connection=session) for session in sessions))
    assert len({handle.id for handle in handles}) == 1
    assert sorted(handle.status for handle in handles) == ["kept"] * 11 + ["new"]
    assert await scene.db.value("select count(*) from holdfast.jobs") == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_second_session_waits_for_the_first_and_follows_what_it_did(scene: Scene, end: str) -> None:
    """Until the first has committed nobody knows whether its job will exist."""
    first, second = await scene.session(), await scene.session()
    transaction = first.transaction()
    await transaction.start()
    made = await put(scene, connection=first)
    later = asyncio.create_task(put(scene, connection=second))
    await scene.blocked(second)
    await (transaction.commit() if end == "commit" else transaction.rollback())
    answer = await later
    assert (answer.status, answer.id == made.id) == (
        (Enqueued.KEPT, True) if end == "commit" else ("new", False)
    )


async def test_sessions_with_the_same_keys_in_opposite_order_do_not_deadlock(scene: Scene) -> None:
    """Keys are taken in one order by everybody: the second waits for the first and both end well."""
    first, second = await scene.session(), await scene.session()
    keys = [f"key {n}" for n in range(50)]

    async def put_all(connection: Connection, order: list[str]) -> list[JobHandle]:
        new = [NewJob(kind=KIND, args="{}", unique_key=key) for key in order]
        return await scene.run(jobs.enqueue_jobs(new), connection)

    for _ in range(5):
        one, other = await asyncio.gather(put_all(first, keys), put_all(second, keys[::-1]))
        assert {handle.id for handle in one} == {handle.id for handle in other}


async def test_a_replace_waits_for_a_claim_under_way_and_then_keeps(scene: Scene) -> None:
    """The claim was first, so the job runs as it was asked for before."""
    await put(scene)
    worker = await scene.worker()
    claiming, replacing = await scene.session(), await scene.session()
    transaction = claiming.transaction()
    await transaction.start()
    await scene.claim(worker, connection=claiming)
    replace = asyncio.create_task(put(scene, policy=REPLACE, connection=replacing))
    await scene.blocked(replacing)
    await transaction.commit()
    assert (await replace).status is Enqueued.KEPT


async def test_a_claim_passes_over_a_job_that_is_being_replaced(scene: Scene) -> None:
    """It is claimed afterwards, with its new arguments."""
    await put(scene)
    worker = await scene.worker()
    session = await scene.session()
    async with session.transaction():
        await put(scene, policy=REPLACE, args='{"n": 2}', connection=session)
        assert await scene.claim(worker) == []
    assert [job.args for job in await scene.claim(worker)] == ['{"n": 2}']


async def test_racing_replaces_leave_one_whole_job(scene: Scene) -> None:
    """Of ten replaces at once the last one stands, in both rows of the job."""
    await put(scene)
    sessions = [await scene.session() for _ in range(10)]
    handles = await asyncio.gather(
        *(
            put(scene, policy=REPLACE, priority=n, args=f'{{"n": {n}}}', connection=session)
            for n, session in enumerate(sessions)
        )
    )
    assert {handle.status for handle in handles} == {Enqueued.REPLACED}
    rows = await scene.db.fetch(
        "select l.priority, (j.args ->> 'n')::integer, j.priority, j.revision, l.revision "
        "from holdfast.live_jobs l join holdfast.jobs j on j.id = l.job_id"
    )
    assert len(rows) == 1
    priority, asked, stored, *revisions = rows[0]
    assert priority == asked == stored
    assert revisions == [10, 10]


async def test_an_id_taken_by_hand_does_not_hold_up_an_enqueue(scene: Scene) -> None:
    """Where a restore left the sequence behind the rows, the next free id is found."""
    await scene.enqueue(3)
    await scene.db.fetch("select setval('holdfast.jobs_id_seq', 1)")
    async with asyncio.timeout(10):
        assert (await put(scene)).id > 3
