"""Who gets which job: order, buffer, pause, kinds, and claims that race with everything else."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from holdfast.model.audit import Mandate
from holdfast.model.job import ClaimedJob, JobState, UniquePolicy
from holdfast.model.outcome import Outcome, PutBack
from holdfast.store import attempts, workers
from holdfast.store.attempts import Fence, Returned
from holdfast.store.interventions import cancel_jobs, discard_jobs, retry_jobs
from holdfast.store.sqlfile import rendered
from tests.store.scene import KIND, Scene, fence


def ids(claimed: list[ClaimedJob]) -> list[int]:
    """The ids of claimed jobs in their order."""
    return [job.id for job in claimed]


async def test_the_lowest_priority_number_goes_first_then_the_oldest(scene: Scene) -> None:
    """Inside a queue priority is strict, and equal priorities go in the order of their ids."""
    asked = {priority: await scene.enqueue(2, priority=priority) for priority in (5, 0, 9, 3)}
    worker = await scene.worker()
    first = await scene.claim(worker, limit=5)
    assert ids(first) == asked[0] + asked[3] + asked[5][:1]
    assert ids(await scene.claim(worker)) == asked[5][1:] + asked[9]


async def test_a_claim_in_a_hurry_leaves_what_somebody_has_locked_or_had(scene: Scene) -> None:
    """It asks for no lock that another may have; the next look finds what was let go."""
    worker = await scene.worker()
    locked, let_go, free = await scene.enqueue(3)
    lock = "select from holdfast.live_jobs where job_id = $1 for update"
    await scene.db.fetch(lock, let_go)
    async with scene.db.database.transaction() as other:
        await other.fetch(rendered(lock, scene.db.schema), locked)
        assert ids(await scene.claim(worker, hurried=True)) == [free]
        assert ids(await scene.claim(worker)) == [let_go]
    assert ids(await scene.claim(worker, hurried=True)) == []
    assert ids(await scene.claim(worker)) == [locked]


async def test_what_came_back_is_claimed_in_a_hurry_too(scene: Scene) -> None:
    """It was locked on its way and keeps the mark, which says nothing of a lock that stands."""
    worker = await scene.worker()
    await scene.enqueue(1)
    (job,) = await scene.claim(worker)
    again = PutBack(Outcome.RETRIED, 0.0, counts=True, reason="for a test")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), again)]))
    assert await scene.db.value("select xmax::text <> '0' from holdfast.live_jobs")
    assert ids(await scene.claim(worker, hurried=True)) == [job.id]


async def test_a_claim_finds_room_in_the_primary_key(scene: Scene) -> None:
    """Each job is in it a second time then; to search full pages for what may go, and split them, is dear."""
    worker, size = await scene.worker(), "select pg_relation_size('holdfast.live_jobs_pkey')"
    await scene.db.fetch("select holdfast.enqueue('greet') from generate_series(1, 5000)")
    before = await scene.db.value(size)
    assert len(await scene.claim(worker, limit=5000, free=0)) == 5000
    assert await scene.db.value(size) <= 1.1 * before


async def test_queues_are_served_in_the_order_asked_for(scene: Scene) -> None:
    """One statement claims from several queues, and takes the next queue only for what the former leaves."""
    worker = await scene.worker("a", "b", "c")
    made = {queue: await scene.enqueue(3, queue=queue) for queue in ("a", "b", "c")}
    claimed = await scene.claim(worker, "c", "a", "b", limit=5)
    assert sorted(ids(claimed)) == sorted(made["c"] + made["a"][:2])


async def test_a_batch_is_no_larger_than_asked_for(scene: Scene) -> None:
    """The limit holds for all queues together, and what is left stays available."""
    worker = await scene.worker("a", "b")
    await scene.enqueue(20, queue="a")
    await scene.enqueue(20, queue="b")
    assert len(await scene.claim(worker, "a", "b", limit=25)) == 25
    assert sorted((await scene.states()).values()).count("available") == 15


async def test_the_first_of_a_claim_run_and_the_rest_wait_in_the_buffer(scene: Scene) -> None:
    """What goes to free slots is running from the start; what is buffered is claimed and has not started."""
    worker = await scene.worker()
    made = await scene.enqueue(5)
    claimed = await scene.claim(worker, limit=5, free=2)
    assert [job.started for job in claimed] == [True, True, False, False, False]
    states = await scene.states()
    assert [states[job_id] for job_id in made] == ["running"] * 2 + ["claimed"] * 3
    rows = await scene.db.fetch("select started_at is not null from holdfast.live_jobs order by job_id")
    assert rows == [(True,), (True,), (False,), (False,), (False,)]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(scene: Scene) -> None:
    """Pause stops claims of its queue only, and its jobs keep their place."""
    worker = await scene.worker("a", "b")
    first, other = await scene.enqueue(queue="a"), await scene.enqueue(queue="b")
    await scene.db.fetch("update holdfast.queues set paused = true where name = 'a'")
    assert ids(await scene.claim(worker, "a", "b")) == other
    assert await scene.claim_limited(worker, "a") == []
    await scene.db.fetch("update holdfast.queues set paused = false where name = 'a'")
    assert ids(await scene.claim(worker, "a", "b")) == first


async def test_a_job_of_an_unknown_kind_is_left_for_others(scene: Scene) -> None:
    """A claim passes over kinds that its worker has no handler for."""
    worker = await scene.worker()
    strange, known = await scene.enqueue(kind="strange", priority=0), await scene.enqueue()
    assert ids(await scene.claim(worker)) == known
    assert ids(await scene.claim(worker, kinds=["strange", KIND])) == strange


@pytest.mark.parametrize(
    "change",
    [
        "update holdfast.workers set state = 'draining'",
        "update holdfast.workers set state = 'offline'",
        "update holdfast.workers set state = 'lost'",
        "update holdfast.workers set expires_at = holdfast.now()",
    ],
)
async def test_a_worker_that_may_not_hold_leases_claims_nothing(scene: Scene, change: str) -> None:
    """Draining, gone, lost or past its lease: the claim answers nothing and changes nothing."""
    worker = await scene.worker()
    await scene.enqueue()
    await scene.db.fetch(change)
    before = await scene.dump()
    assert await scene.claim(worker) == []
    assert await scene.claim_limited(worker) == []
    assert await scene.dump() == before


async def test_a_worker_without_a_row_claims_nothing(scene: Scene) -> None:
    """An id that was never registered holds no lease."""
    await scene.enqueue()
    assert await scene.claim(4711) == []


async def test_every_claim_takes_a_new_attempt_number(scene: Scene) -> None:
    """The number grows by one with every claim, whatever ended the former attempt."""
    worker = await scene.worker()
    await scene.enqueue()
    for number, outcome in enumerate((Outcome.RELEASED, Outcome.RETRIED, Outcome.SNOOZED), start=1):
        (job,) = await scene.claim(worker)
        assert job.attempt == number
        decision = PutBack(outcome, 0.0, outcome is Outcome.RETRIED, "again")
        assert await scene.run(attempts.put_back_jobs([Returned(fence(job), decision)])) == [job.id]
    (job,) = await scene.claim(worker)
    assert (job.attempt, job.failures) == (4, 1)


async def test_claims_that_race_never_hand_out_one_job_twice(scene: Scene) -> None:
    """Twelve sessions empty a queue of 600 jobs; every job comes out exactly once, as attempt 1."""
    made = await scene.enqueue(600)
    worker = await scene.worker()
    sessions = [await scene.session() for _ in range(12)]

    async def drain(connection: Any) -> list[ClaimedJob]:
        mine: list[ClaimedJob] = []
        while batch := await scene.claim(worker, limit=7, connection=connection):
            mine += batch
        return mine

    shares = await asyncio.gather(*map(drain, sessions))
    claimed = [job for share in shares for job in share]
    assert sorted(ids(claimed)) == made
    assert {job.attempt for job in claimed} == {1}


async def test_a_claim_passes_over_a_job_that_is_being_cancelled(scene: Scene) -> None:
    """While a cancel is not committed its job is out of reach; afterwards it is gone."""
    worker = await scene.worker()
    wanted, other = await scene.enqueue(), await scene.enqueue()
    session = await scene.session()
    async with session.transaction():
        assert await scene.run_on(session, cancel_jobs(wanted, Mandate("somebody"))) == {wanted[0]: True}
        assert ids(await scene.claim(worker)) == other
    assert await scene.claim(worker) == []
    assert (await scene.states())[wanted[0]] == "cancelled"


async def test_a_cancel_waits_for_a_claim_under_way_and_then_asks_its_worker(scene: Scene) -> None:
    """A cancel that meets a claim does not delete the job under the handler: it asks it to stop."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue()
    claiming, cancelling = await scene.session(), await scene.session()
    transaction = claiming.transaction()
    await transaction.start()
    assert ids(await scene.claim(worker, connection=claiming)) == [job_id]
    cancel = asyncio.create_task(scene.run_on(cancelling, cancel_jobs([job_id], Mandate("somebody"))))
    await scene.blocked(cancelling)
    await transaction.commit()
    assert await cancel == {job_id: False}
    assert [fence.job_id for fence in await scene.run(attempts.cancel_requests([Fence(job_id, 1)]))] == [
        job_id
    ]


@pytest.mark.parametrize("act", [cancel_jobs, discard_jobs])
async def test_an_act_on_available_jobs_leaves_one_that_was_claimed_meanwhile(scene: Scene, act: Any) -> None:
    """Whoever names the state means what has not begun: who takes a job first decides."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue()
    claiming, acting = await scene.session(), await scene.session()
    transaction = claiming.transaction()
    await transaction.start()
    assert ids(await scene.claim(worker, connection=claiming)) == [job_id]
    statement = act([job_id], Mandate("somebody"), [JobState.AVAILABLE])
    task = asyncio.create_task(scene.run_on(acting, statement))
    await scene.blocked(acting)
    await transaction.commit()
    assert not await task
    assert await scene.run(attempts.cancel_requests([Fence(job_id, 1)])) == []


async def test_a_retry_of_failed_jobs_leaves_those_that_are_something_else_by_now(scene: Scene) -> None:
    """Somebody else has cancelled one meanwhile, and another one is to be tried again later."""
    cancelled, later = await scene.enqueue(), await scene.enqueue(delay=60)
    await scene.run(cancel_jobs(cancelled, Mandate("somebody")))
    before = await scene.states()
    assert await scene.run(retry_jobs(cancelled + later, Mandate("me"), [JobState.FAILED])) == {}
    assert await scene.states() == before


async def test_a_worker_is_not_declared_lost_while_its_claim_is_under_way(scene: Scene) -> None:
    """A claim holds the worker's row, and the leader passes over rows that are held."""
    worker = await scene.worker()
    term = await scene.lead()
    await scene.enqueue()
    session = await scene.session()
    async with session.transaction():
        assert len(await scene.claim(worker, connection=session)) == 1
        await scene.db.fetch("update holdfast.workers set ttl = '0', expires_at = '-infinity'")
        assert await scene.run(workers.declare_lost(term)) == []
    assert await scene.run(workers.declare_lost(term)) == [worker]
    assert [one.fate for one in await scene.run(workers.rescue_jobs(term, 10))] == ["lost"]


async def test_a_claim_that_meets_a_declaration_of_loss_gets_nothing(scene: Scene) -> None:
    """A claim waits while its worker is being declared lost, and then finds that it is."""
    worker = await scene.worker()
    term = await scene.lead()
    (job_id,) = await scene.enqueue()
    declaring, claiming = await scene.session(), await scene.session()
    transaction = declaring.transaction()
    await transaction.start()
    # The lease runs out for the leader only: what it changed is not committed when the claim begins.
    await scene.execute(declaring, "update holdfast.workers set ttl = '0', expires_at = '-infinity'")
    assert await scene.run_on(declaring, workers.declare_lost(term)) == [worker]
    claim = asyncio.create_task(scene.claim(worker, connection=claiming))
    await scene.blocked(claiming)
    await transaction.commit()
    assert await claim == []
    assert await scene.states() == {job_id: "available"}


async def test_a_renewal_does_not_wait_for_a_claim(scene: Scene) -> None:
    """The lease is prolonged while a claim of the same worker is under way."""
    worker = await scene.worker()
    session = await scene.session()
    async with session.transaction():
        await scene.claim(worker, connection=session)
        assert await scene.run(workers.renew_worker(worker)) is not None


async def test_a_job_replaced_while_a_claim_waits_is_never_run_with_its_former_arguments(
    scene: Scene,
) -> None:
    """The claim began before the replace and goes on after it: it leaves the job for the next claim."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue(args='{"n": 1}', unique_key="u")
    holding, claiming = await scene.session(), await scene.session()
    transaction = holding.transaction()
    await transaction.start()
    await scene.execute(holding, "select id from holdfast.workers for update")
    claim = asyncio.create_task(scene.claim(worker, connection=claiming))
    await scene.blocked(claiming)
    replaced = await scene.enqueue(args='{"n": 2}', unique_key="u", unique_policy=UniquePolicy.REPLACE)
    assert replaced == [job_id]
    await transaction.commit()
    assert [job.args for job in await claim] == []
    assert [job.args for job in await scene.claim(worker)] == ['{"n": 2}']


async def test_an_announced_job_is_claimed_as_any_other(scene: Scene) -> None:
    """It comes with all that a claim from its line would have brought, and runs."""
    worker = await scene.worker()
    options = {
        "args": '{"n": 1}',
        "tags": ["t"],
        "meta": '{"m": 1}',
        "retry": '{"backoff": 1}',
        "trace": "00-a",
    }
    one, other = await scene.enqueue(2, **options)
    (by_line,) = await scene.claim(worker, limit=1)
    (by_number,) = await scene.claim_announced(worker, other)
    assert (by_line.id, by_number.id) == (one, other)
    same = {"id": 0, "place": 0, "claimed": 0.0, "enqueued": 0.0}
    assert structs.replace(by_number, **same) == structs.replace(by_line, **same)
    row = "select state, attempt, worker_id, started_at = claimed_at from holdfast.live_jobs order by job_id"
    assert await scene.db.fetch(row) == [("running", 1, worker, True)] * 2


@pytest.mark.parametrize(
    "change",
    [
        "update holdfast.live_jobs set state = 'scheduled', run_at = now() + interval '1 h'",
        "update holdfast.live_jobs set state = 'waiting'",
        "update holdfast.live_jobs set kind = 'another'",
        "update holdfast.live_jobs set concurrency_key = 'k'",
        "update holdfast.live_jobs set route_id = holdfast.route_for('default', 'greet', '{}', null)",
        "update holdfast.queues set paused = true",
        "update holdfast.queues set max_running = 5",
        "update holdfast.workers set state = 'draining'",
        "update holdfast.workers set expires_at = now() - interval '1 s'",
        "delete from holdfast.live_jobs",
    ],
)
async def test_an_announced_job_that_no_claim_could_take_is_left(scene: Scene, change: str) -> None:
    """Its number gives it no right that it would not have in its line."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue()
    await scene.db.fetch(change)
    before = await scene.dump()
    assert await scene.claim_announced(worker, job_id) == []
    assert await scene.claim(worker) == []
    assert await scene.dump() == before


async def test_an_announced_job_goes_to_one_of_all_who_were_told(scene: Scene) -> None:
    """The others do not wait for whoever is faster, and get nothing once that has it."""
    worker = await scene.worker()
    (job_id,) = await scene.enqueue()
    session = await scene.session()
    async with session.transaction():
        assert ids(await scene.claim_announced(worker, job_id, session)) == [job_id]
        assert await scene.claim_announced(worker, job_id) == []
    assert await scene.claim_announced(worker, job_id) == []
    assert await scene.db.value("select attempt from holdfast.live_jobs") == 1
