"""Jobs claimed ahead of a permit of their limited queue, and permits that are handed on."""

import asyncio
import time
from itertools import pairwise

import pytest

from holdfast.client.delivery_operator import DeliveryOperator, Wish
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Complete
from holdfast.store import attempts, deliveries
from holdfast.store.attempts import Demand, Ended, Fence
from tests.store.scene import KIND, Scene, fence
from tests.store.test_limits import limit, most_at_once

RUNNING = """
    select count(*) from holdfast.live_jobs
    where worker_id is not null and not (ahead and state = 'claimed')
"""
GIVE_BACK = """
    update holdfast.live_jobs set state = 'available', worker_id = null, claimed_at = null, started_at = null
    where job_id = $1
"""
HALTING = """
    create function holdfast.keyed_heads(
        text, text[], integer, integer, integer, integer, out heads bigint[], out until bigint
    )
    language plpgsql as $$
    begin
        perform pg_advisory_xact_lock_shared(4711);
        select * into heads, until from holdfast.found_heads($1, $2, $3, $4, $5, $6);
    end $$
"""
INTERVALS = "select job_id, claimed_at, finished_at from holdfast.finished_jobs order by job_id"


async def capped(scene: Scene, most: int, jobs: int) -> int:
    """A queue with a limit and so many jobs; answers a worker of it."""
    worker = await scene.worker()
    await limit(scene, max_running=most)
    await scene.enqueue(jobs)
    return worker


def ahead(claimed: list[ClaimedJob]) -> list[int]:
    """The jobs among these that have no permit."""
    return [job.id for job in claimed if job.ahead]


async def pass_on(scene: Scene, *chain: ClaimedJob) -> list[int]:
    """End all of these but the last, each of which hands its permit to the one behind it."""
    now = time.monotonic()
    ended = [
        Ended(fence(one), Complete(None), 0.001, heir=fence(heir), at=now - 0.01 * (len(chain) - n))
        for n, (one, heir) in enumerate(pairwise(chain))
    ]
    return await scene.run(attempts.finish_jobs(ended))


async def test_what_is_claimed_ahead_takes_up_no_room(scene: Scene) -> None:
    """Beside the two that may run three more come, marked; another worker finds the limit reached."""
    worker = await capped(scene, 2, 10)
    claimed = await scene.claim_limited(worker, free=4, more=3)
    assert [job.started for job in claimed] == [True, True, False, False, False]
    assert ahead(claimed) == [job.id for job in claimed[2:]]
    assert await scene.db.value(RUNNING) == 2
    assert await scene.claim_limited(await scene.worker(), free=4, more=3) == []


async def test_a_worker_without_permits_claims_nothing_ahead(scene: Scene) -> None:
    """It would have none to hand on, and keep the jobs from those who have."""
    worker = await capped(scene, 1, 10)
    first = await scene.claim_limited(worker, free=1)
    other = await scene.worker()
    assert await scene.claim_limited(other, free=0, wanted=0, more=5) == []
    assert len(ahead(await scene.claim_limited(worker, free=0, wanted=0, more=5))) == 5
    await scene.complete(*first)


async def test_an_end_hands_its_permit_on(scene: Scene) -> None:
    """In one statement: nobody else can have it in between, and the count stays what it was."""
    worker = await capped(scene, 1, 5)
    one, heir = await scene.claim_limited(worker, free=1, more=1)
    assert await pass_on(scene, one, heir) == [one.id]
    assert await scene.db.value(RUNNING) == 1
    assert await scene.claim_limited(await scene.worker(), free=1) == []
    await scene.complete(heir)
    assert most_at_once(await scene.db.fetch(INTERVALS)) <= 1
    assert len(await scene.claim_limited(await scene.worker(), free=1)) == 1


async def test_an_heir_begins_no_sooner_than_it_has_its_permit(scene: Scene) -> None:
    """Its beginning may be recorded before the permit is."""
    worker = await capped(scene, 1, 2)
    one, heir = await scene.claim_limited(worker, free=1, more=1)
    await scene.db.fetch("update holdfast.live_jobs set claimed_at = claimed_at - interval '1 s'")
    assert await scene.run(attempts.start_jobs([(fence(heir), 0.5)])) == [heir.id]
    assert await pass_on(scene, one, heir) == [one.id]
    assert await scene.db.value("select started_at >= claimed_at from holdfast.live_jobs")


async def test_a_whole_chain_ends_in_one_statement(scene: Scene) -> None:
    """By the recorded times no two of them ran at once, and each ended when it did."""
    worker = await capped(scene, 1, 5)
    claimed = await scene.claim_limited(worker, free=1, more=3)
    await scene.db.fetch("update holdfast.live_jobs set claimed_at = claimed_at - interval '1 s'")
    assert await pass_on(scene, *claimed) == [job.id for job in claimed[:3]]
    assert await scene.db.value(RUNNING) == 1
    await scene.complete(claimed[3])
    recorded = await scene.db.fetch(INTERVALS)
    assert most_at_once(recorded) == 1
    ends = [end for _, _, end in recorded]
    assert all(0.009 < (b - a).total_seconds() < 0.011 for a, b in pairwise(ends[:3]))


async def test_permits_go_first_to_what_was_claimed_ahead(scene: Scene) -> None:
    """Where no job handed its permit on, a claim gives it to them, as the attempts that they are already."""
    worker = await capped(scene, 2, 6)
    claimed = await scene.claim_limited(worker, free=2, more=3)
    await scene.complete(*claimed[:2])
    again = await scene.claim_limited(worker, free=2, more=0)
    assert [(job.id, job.attempt) for job in again] == [(job.id, job.attempt) for job in claimed[3:]]
    assert [(job.is_held, job.ahead, job.started) for job in again] == [(True, False, True)] * 2
    assert await scene.db.value(RUNNING) == 2


async def test_a_claim_with_more_permits_than_were_waited_for_brings_new_jobs_as_well(scene: Scene) -> None:
    """The best that was claimed ahead, then the best that is available, then what is claimed ahead anew."""
    worker = await capped(scene, 3, 10)
    claimed = await scene.claim_limited(worker, free=3, more=1)
    await scene.complete(*claimed[:3])
    again = await scene.claim_limited(worker, free=3, more=2)
    assert [job.is_held for job in again] == [True, False, False, False, False]
    assert [job.ahead for job in again] == [False, False, False, True, True]
    assert await scene.db.value(RUNNING) == 3


async def test_nothing_is_claimed_ahead_while_more_run_than_may(scene: Scene) -> None:
    """A limit that was lowered is reached as running jobs end, so their permits are not for handing on."""
    worker = await capped(scene, 5, 20)
    claimed = await scene.claim_limited(worker, free=5)
    await limit(scene, max_running=2)
    assert await scene.claim_limited(worker, free=0, wanted=0, more=5) == []
    await scene.complete(*claimed[:3])
    assert len(ahead(await scene.claim_limited(worker, free=0, wanted=0, more=5))) == 5


@pytest.mark.parametrize("key", [None, "a key"])
async def test_nothing_is_claimed_ahead_while_another_kind_is_first_in_line(
    scene: Scene, key: str | None
) -> None:
    """Who hands permits on for ever would never let a worker of that kind have one."""
    worker = await capped(scene, 1, 20)
    await scene.claim_limited(worker, free=1)
    await scene.enqueue(1, kind="another", priority=0, concurrency_key=key)
    assert await scene.claim_limited(worker, free=0, wanted=0, more=5) == []
    await scene.db.fetch("update holdfast.live_jobs set priority = 9 where kind = 'another'")
    more = await scene.claim_limited(worker, free=0, wanted=0, more=5)
    assert len(more) == (5 if key is None else 0)


async def test_nothing_is_claimed_ahead_while_a_runner_could_have_the_permit(scene: Scene) -> None:
    """Jobs for runners are not in the worker's line at all, whatever their priority is."""
    worker = await capped(scene, 1, 20)
    await scene.claim_limited(worker, free=1)
    await scene.enqueue(1, placement='{"labels": ["gpu"]}', priority=9)
    assert await scene.claim_limited(worker, free=0, wanted=0, more=5) == []


async def test_an_heir_that_was_given_back_meanwhile_gets_no_permit(scene: Scene) -> None:
    """Another attempt of it may run elsewhere by then, with a permit of its own."""
    worker = await capped(scene, 1, 1)
    await scene.enqueue(1)
    one, heir = await scene.claim_limited(worker, free=1, more=1)
    await scene.db.fetch(GIVE_BACK, heir.id)
    assert await pass_on(scene, one, heir) == [one.id]
    assert await scene.db.value(RUNNING) == 0
    again = await scene.claim_limited(worker, free=1)
    assert [(job.id, job.attempt, job.is_held) for job in again] == [(heir.id, heir.attempt + 1, False)]


async def test_a_stale_attempt_of_an_heir_gets_no_permit(scene: Scene) -> None:
    """The fence holds for heirs as well."""
    worker = await capped(scene, 1, 2)
    one, heir = await scene.claim_limited(worker, free=1, more=1)
    stale = Ended(fence(one), Complete(None), heir=Fence(heir.id, heir.attempt + 1), at=time.monotonic())
    await scene.run(attempts.finish_jobs([stale]))
    assert await scene.db.value(RUNNING) == 0


async def test_an_end_is_told_no_earlier_than_deliveries_have_looked(scene: Scene) -> None:
    """Its report may be long under way, and the deliverer looks only at what ended after its last look."""
    worker = await capped(scene, 1, 5)
    await DeliveryOperator(scene.db.database, "tester").add("here", "https://example.com", Wish())
    one, heir = await scene.claim_limited(worker, free=1, more=1)
    await scene.db.fetch("update holdfast.live_jobs set claimed_at = claimed_at - interval '1 minute'")
    late = Ended(fence(one), Complete(None), 1.0, heir=fence(heir), at=time.monotonic() - 30)
    horizon = await scene.run(deliveries.delivery_horizon())
    await scene.run(attempts.finish_jobs([late]))
    assert horizon is not None
    assert await scene.db.value("select finished_at from holdfast.finished_jobs") >= horizon.moment


async def test_an_end_that_hands_nothing_on_is_told_as_of_its_report(scene: Scene) -> None:
    """And its claim as of the claim."""
    one = await scene.one()
    claimed_at = await scene.db.value("select claimed_at from holdfast.live_jobs")
    before = await scene.db.value("select clock_timestamp()")
    await scene.complete(one)
    [(_, begun, ended)] = await scene.db.fetch(INTERVALS)
    assert begun == claimed_at
    assert ended >= before


async def test_a_permit_of_a_key_is_not_recorded_before_it_is_free(scene: Scene) -> None:
    """The claim had begun when the job before it ended: what it found free is so only from then on."""
    worker = await scene.worker()
    await scene.enqueue(2, concurrency_key="one")
    first = await scene.claim_limited(worker, free=1)
    await scene.db.fetch("alter function holdfast.keyed_heads rename to found_heads")
    await scene.db.fetch(HALTING)
    session = await scene.session()
    await session.execute("select pg_advisory_lock(4711)")
    claim = asyncio.create_task(scene.claim_limited(worker, free=1))
    await scene.blocked()
    await scene.complete(*first)
    await session.execute("select pg_advisory_unlock(4711)")
    await scene.complete(*await claim)
    (_, _, ended), (_, begun, _) = await scene.db.fetch(INTERVALS)
    assert begun >= ended


async def test_a_limit_that_is_new_counts_what_was_claimed_without_one(scene: Scene) -> None:
    """An old mark does not outlive the claim that set it."""
    worker = await capped(scene, 1, 1)
    await scene.enqueue(1)
    _, second = await scene.claim_limited(worker, free=1, more=1)
    await scene.db.fetch(GIVE_BACK, second.id)
    await limit(scene, max_running=None)
    demand = Demand(worker_id=worker, queues=("default",), kinds=(KIND,), limit=1, free=0)
    assert [job.id for job in await scene.run(attempts.claim_jobs(demand))] == [second.id]
    assert await scene.db.value(RUNNING) == 2
