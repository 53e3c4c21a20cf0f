"""Jobs are taken from the dead, and only from them."""

import time
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseRefused
from holdfast.maintenance.rescuer import BATCH, LEFT_EVERY, REST, Rescuer
from holdfast.model.audit import Mandate
from holdfast.model.job import ClaimedJob
from holdfast.runtime.service import Service
from holdfast.store import interventions, leader, workers
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.store.scene import Scene

ATTEMPTS = "select outcome, reason from holdfast.attempts where job_id = $1"
LIVE = "select state, attempt, failures, worker_id from holdfast.live_jobs where job_id = $1"
FINISHED = "select outcome, reason, error, failures from holdfast.finished_jobs where job_id = $1"


async def expire(scene: Scene, worker_id: int) -> None:
    """Let a lease have run out long ago."""
    await scene.db.fetch(
        "update holdfast.workers set ttl = '0', expires_at = '-infinity' where id = $1", worker_id
    )


async def rescued(rescuer: Rescuer) -> None:
    """Let the leader look once."""
    assert rescuer.leadership.term is not None
    await rescuer.lead(rescuer.leadership.term)


async def test_a_running_job_of_a_dead_worker_counts_a_failure_and_goes_on(scene: Scene, duty: Any) -> None:
    """The attempt ends as lost, with the worker's name, and the job is available at once."""
    job = await scene.one(dead := await scene.worker())
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    assert await scene.db.fetch(LIVE, job.id) == [("available", 1, 1, None)]
    assert await scene.db.fetch(ATTEMPTS, job.id) == [
        ("lost", f"worker {dead} (w) stopped renewing its lease")
    ]
    assert await scene.db.value("select state from holdfast.workers where id = $1", dead) == "lost"


async def test_a_job_that_has_killed_its_last_worker_fails(scene: Scene, duty: Any) -> None:
    """At max_attempts a loss is final, and both reason and error say so."""
    job = await scene.one(dead := await scene.worker(), max_attempts=1)
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    reason = f"worker {dead} (w) stopped renewing its lease"
    assert await scene.db.fetch(FINISHED, job.id) == [("failed", reason, f"attempts exhausted: {reason}", 1)]
    assert await scene.db.fetch(LIVE, job.id) == []


async def test_a_job_that_only_waited_in_a_buffer_is_released_unspent(scene: Scene, duty: Any) -> None:
    """It never began, so its death costs nothing, not even the last attempt."""
    await scene.enqueue(max_attempts=1)
    dead = await scene.worker()
    (job,) = await scene.claim(dead, free=0)
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    assert await scene.db.fetch(LIVE, job.id) == [("available", 1, 0, None)]
    assert [row[0] for row in await scene.db.fetch(ATTEMPTS, job.id)] == ["released"]


async def test_a_job_whose_cancel_was_asked_for_ends_as_cancelled(scene: Scene, duty: Any) -> None:
    """Nobody can stop it any more, and nobody starts it again."""
    job = await scene.one(dead := await scene.worker())
    await scene.db.fetch("update holdfast.live_jobs set cancel_requested_at = holdfast.now()")
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    assert [row[0] for row in await scene.db.fetch(FINISHED, job.id)] == ["cancelled"]


async def test_a_worker_that_renews_is_never_touched(scene: Scene, clock: Clock, duty: Any) -> None:
    """A job may run for days: only a lease that runs out is a death."""
    await clock.set(await clock.now())
    job = await scene.one(worker := await scene.worker(ttl=60.0))
    for _ in range(6):
        await clock.advance(59)
        assert await scene.run(workers.renew_worker(worker)) is not None
        await duty(Rescuer).lead(await scene.lead())
    assert await scene.db.fetch(LIVE, job.id) == [("running", 1, 0, worker)]


async def test_a_restart_of_postgresql_gives_everybody_a_full_ttl(
    scene: Scene, duty: Any, probe: Probe
) -> None:
    """Nobody could renew while the server was down: a lease lasts a ttl from the start of the server on."""
    spared, dead = await scene.worker(), await scene.worker()
    await scene.one(spared)
    await scene.db.fetch(
        "update holdfast.workers set expires_at = holdfast.now() - interval '1 hour', "
        "ttl = case id when $1 then holdfast.now() - pg_postmaster_start_time() + interval '1 minute' "
        "else holdfast.now() - pg_postmaster_start_time() - interval '1 millisecond' end",
        spared,
    )
    await duty(Rescuer).lead(await scene.lead())
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [dead]
    assert not probe.seen("jobs.rescued")


async def test_who_died_before_the_clock_was_set_back_is_lost_after_a_ttl(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Its lease lies in the future; that of who lives did too, and has a ttl to be renewed."""
    # PostgreSQL itself has run for longer than a ttl.
    start, ahead = await clock.now() + timedelta(days=1), timedelta(hours=1)
    await clock.set(start + ahead)
    alive, dead = await scene.worker(ttl=60.0), await scene.worker(ttl=60.0)
    leading = leader.lead("here", None, 100.0, 104.0)
    term = await scene.run(leading)
    await scene.db.fetch("update holdfast.leader set heard_since = '-infinity'")
    for seconds in (0, 30, 59, 61):
        assert not probe.seen("worker.lost")
        await clock.set(start + timedelta(seconds=seconds))
        await duty(Rescuer).lead(term)
        assert await scene.run(leading) == term
        await duty(Rescuer).lead(term)
        if seconds == 30:
            await scene.run(workers.renew_worker(alive))
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [dead]


async def test_an_outage_gives_everybody_a_full_ttl(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Nobody could renew while nobody was heard: a lease lasts a ttl from then on, and no longer."""
    rescuer = duty(Rescuer)
    leadership = rescuer.leadership
    await clock.set(await clock.now())
    await leadership.turn()
    await scene.one(worker := await scene.worker(ttl=30.0))
    await clock.advance(150)
    for waited in (0, 7, 7, 7, 8):
        await clock.advance(waited)
        await leadership.turn()
        await rescued(rescuer)
    assert not probe.seen("worker.lost")
    await clock.advance(2)
    await leadership.turn()
    await rescued(rescuer)
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [worker]


async def test_a_death_among_leaders_is_no_outage(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Whoever follows could have been there all the time: what ran out has run out."""
    await clock.set(await clock.now())
    dying, following = duty(Rescuer), duty(Rescuer)
    await scene.one(worker := await scene.worker(ttl=30.0))
    for leads, waited in ((dying, 0), *[(dying, 5)] * 6, (following, 5)):
        await clock.advance(waited)
        await leads.leadership.turn()
    await rescued(following)
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [worker]


async def test_gap_after_gap_spares_nobody_for_long(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """A process whose loop stands still may be the only one that leads: the dead are lost all the same."""
    await clock.set(await clock.now())
    rescuer = duty(Rescuer)
    await rescuer.leadership.turn()
    await clock.advance(150)
    await scene.one(worker := await scene.worker(ttl=30.0))
    for waited in (0, 14, 14, 14):
        await clock.advance(waited)
        await rescuer.leadership.turn()
        await rescued(rescuer)
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [worker]


async def test_a_clock_that_was_ahead_for_a_while_keeps_nobody_from_being_lost(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Since when leaders are heard may lie ahead then: no later than now counts."""
    start = await clock.now()
    await clock.set(start)
    rescuer = duty(Rescuer)
    await rescuer.leadership.turn()
    await clock.advance(3600)
    await rescuer.leadership.turn()
    await clock.set(start)
    await scene.one(worker := await scene.worker(ttl=30.0))
    for waited in (0, 16, 16):
        await clock.advance(waited)
        await rescuer.leadership.turn()
        await rescued(rescuer)
    assert [told["worker_id"] for told in probe.seen("worker.lost")] == [worker]


async def test_the_many_jobs_of_a_dead_worker_are_rescued_in_batches(
    scene: Scene, duty: Any, probe: Probe
) -> None:
    """Batch follows batch without a rest until nothing is left, whatever the jobs' fates."""
    await scene.enqueue(1200)
    dead = await scene.worker()
    assert len(await scene.claim(dead, limit=1200, free=300)) == 1200
    await expire(scene, dead)
    term, rescuer = await scene.lead(), duty(Rescuer)
    assert [await rescuer.lead(term) for _ in range(3)] == [0.0, 0.0, REST]
    assert [len(told["rescued"]) for told in probe.seen("jobs.rescued")] == [BATCH, BATCH, 200]
    assert set((await scene.states()).values()) == {"available"}
    fates = await scene.db.fetch("select outcome, count(*) from holdfast.attempts group by 1 order by 1")
    assert fates == [("lost", 300), ("released", 900)]


async def test_a_job_that_somebody_has_locked_is_rescued_by_the_next_turn(scene: Scene, duty: Any) -> None:
    """Passed over, it waits no longer for that than it has to."""
    job = await scene.one(dead := await scene.worker())
    term, rescuer = await scene.lead(), duty(Rescuer)
    await expire(scene, dead)
    async with scene.db.database.transaction() as connection:
        await connection.execute(f'select from "{scene.db.schema}".live_jobs for update')
        await rescuer.lead(term)
        assert await scene.db.fetch(LIVE, job.id) == [("running", 1, 0, dead)]
    await rescuer.lead(term)
    assert await scene.db.fetch(LIVE, job.id) == [("available", 1, 1, None)]


async def test_what_a_worker_left_behind_when_it_stopped_is_rescued(scene: Scene, duty: Any) -> None:
    """A worker that went offline holding a job says nothing about it any more: soon somebody looks."""
    job = await scene.one(gone := await scene.worker())
    term, rescuer = await scene.lead(), duty(Rescuer)
    await rescuer.lead(term)
    await scene.run(workers.end_worker(gone))
    for _ in range(LEFT_EVERY):
        await rescuer.lead(term)
    assert await scene.db.fetch(ATTEMPTS, job.id) == [
        ("lost", f"worker {gone} (w) left without giving the job back")
    ]


async def test_what_a_former_leader_declared_lost_is_rescued_by_the_next_one_at_once(
    scene: Scene, duty: Any
) -> None:
    """It may have died in between; who left in good order, and holds something all the same, can wait."""
    job, kept = await scene.one(dead := await scene.worker()), await scene.one(left := await scene.worker())
    await scene.run(workers.end_worker(left))
    await expire(scene, dead)
    assert await scene.run(workers.declare_lost(await scene.lead())) == [dead]
    rescuer, term = duty(Rescuer), await scene.lead()
    await rescuer.lead(term)
    assert await scene.db.fetch(LIVE, job.id) == [("available", 1, 1, None)]
    assert await scene.db.fetch(LIVE, kept.id) == [("running", 1, 0, left)]
    for _ in range(LEFT_EVERY - 1):
        await rescuer.lead(term)
    assert await scene.db.fetch(LIVE, kept.id) == [("available", 1, 1, None)]


async def test_a_worker_that_has_ended_and_holds_nothing_is_looked_at_once(scene: Scene, duty: Any) -> None:
    """What it held may be millions of dead rows: with nothing left of it, it is cleared and left alone."""
    job = await scene.one(gone := await scene.worker())
    lives = await scene.worker()
    term, rescuer = await scene.lead(), duty(Rescuer)
    await scene.run(workers.end_worker(gone))
    for _ in range(2 * LEFT_EVERY):
        await rescuer.lead(term)
    assert await scene.db.value("select outcome from holdfast.attempts where job_id = $1", job.id) == "lost"
    cleared = await scene.db.fetch("select id, cleared from holdfast.workers order by id")
    assert cleared == [(gone, True), (lives, False)]
    # Nothing but a hand can give it a job now, and that nobody looks is what spares the walk.
    await scene.db.fetch(
        "update holdfast.live_jobs set state = 'running', worker_id = $1 where job_id = $2", gone, job.id
    )
    assert await scene.run(workers.rescue_jobs(term, 10)) == []


async def test_a_worker_is_not_cleared_while_a_claim_of_it_is_under_way(scene: Scene) -> None:
    """It may have left while the server was still at work on what it asked last."""
    await scene.enqueue()
    gone, term = await scene.worker(), await scene.lead()
    claiming = await scene.session()
    transaction = claiming.transaction()
    await transaction.start()
    assert len(await scene.claim(gone, connection=claiming)) == 1
    await scene.run(workers.end_worker(gone))
    assert await scene.run(workers.clear_workers(term, 10)) == []
    await transaction.commit()
    assert await scene.run(workers.clear_workers(term, 10)) == []
    assert [one.fate for one in await scene.run(workers.rescue_jobs(term, 10))] == ["lost"]
    assert await scene.run(workers.clear_workers(term, 10)) == [gone]
    assert await scene.claim(gone) == []


async def test_workers_are_cleared_by_what_was_committed_before_the_lock(scene: Scene) -> None:
    """Where each statement sees what the first one saw, a job claimed meanwhile would be overlooked."""
    session = await scene.session()
    await session.execute("begin isolation level repeatable read")
    with pytest.raises(DatabaseRefused, match="read committed"):
        await scene.run_on(session, workers.clear_workers(await scene.lead(), 10))


async def test_rescued_jobs_wake_those_who_sleep(scene: Scene, duty: Any) -> None:
    """The queues of rescued jobs are announced, so nobody waits for a poll."""
    heard: list[object] = []
    session = await scene.session()
    await session.add_listener(scene.db.schema, lambda *args: heard.append(args[3]))
    await scene.one(dead := await scene.worker())
    sleeper = await scene.worker()
    await scene.db.fetch("update holdfast.workers set wakes_below = 10 where id = $1", sleeper)
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    await session.execute("select 1")
    assert heard == ["jobs:5:default"]


async def test_a_dead_worker_comes_too_late_for_everything(scene: Scene, duty: Any) -> None:
    """Whoever was declared lost neither renews, nor claims, nor finishes what was rescued."""
    job: ClaimedJob = await scene.one(dead := await scene.worker())
    await expire(scene, dead)
    await duty(Rescuer).lead(await scene.lead())
    assert await scene.run(workers.renew_worker(dead)) is None
    assert await scene.claim(dead) == []
    assert await scene.complete(job) == []
    assert await scene.db.fetch(LIVE, job.id) == [("available", 1, 1, None)]


async def test_a_cancel_that_races_a_rescue_is_not_lost(scene: Scene, duty: Any) -> None:
    """A rescue passes over a job that is being cancelled and finds the request at its next look."""
    job = await scene.one(dead := await scene.worker())
    await expire(scene, dead)
    session = await scene.session()
    cancelling = session.transaction()
    await cancelling.start()
    await scene.run_on(session, interventions.cancel_jobs([job.id], Mandate("tester")))
    term, rescuer = await scene.lead(), duty(Rescuer)
    await rescuer.lead(term)
    assert await scene.db.value("select state from holdfast.live_jobs where job_id = $1", job.id) == "running"
    await cancelling.commit()
    for _ in range(LEFT_EVERY):
        await rescuer.lead(term)
    assert (await scene.states())[job.id] == "cancelled"


@pytest.mark.parametrize("is_leader", [False, True], ids=["a follower", "the leader"])
async def test_a_dead_workers_job_runs_again_within_ttl_and_five_seconds(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, maintain: Any, probe: Probe, is_leader: bool
) -> None:
    """Also where the dead one was the leader, who has to be followed first."""
    app = holdfast.App()

    @app.job
    async def once(job: holdfast.Job) -> int:
        return job.attempt

    if not is_leader:
        await maintain()
        await probe.wait_for("leader.changed")
    second, took = await work(app, ttl=1.0), list[float]()
    if is_leader:
        await probe.wait_for("leader.changed")
    # A full machine may hold up one or two of them.
    while len(took) < 3 and min(took, default=6.0) >= 1.0 + 5.0:
        first, second = second, await work(app, ttl=1.0)
        # As SIGKILL does it: all at once, without a word.
        first.worker.lease.stop()
        for service in (first.maintenance.leadership, *first.maintenance.duties, first.worker.claimer):
            await Service.stop(service)
        died = time.monotonic()
        # The dead one held a job.
        await second.worker.claimer.stop()
        handle = await client.enqueue(once.job())
        await db.fetch(
            "update holdfast.live_jobs set state = 'running', attempt = 1, worker_id = $1, "
            "claimed_at = now(), started_at = now()",
            first.worker.worker_id,
        )
        await second.worker.claimer.start()
        assert await client.wait(handle.id, timeout=20) == 2
        took.append(time.monotonic() - died)
    assert min(took) < 1.0 + 5.0
