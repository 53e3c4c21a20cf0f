"""Silence, loss, standing still: what becomes of a runner's jobs, and when."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client.operator import Operator
from holdfast.errors import AssignmentStale, RunnerHolding, RunnerSuperseded
from holdfast.maintenance.overseer import Overseer
from holdfast.rules.liveness import Intervals
from holdfast.runners.messages import AssignmentTold
from tests.runners.conftest import Machine, Yard, listed

FINISHED = "select outcome, reason from holdfast.finished_jobs where job_id = $1"


@pytest.fixture
def intervals() -> Intervals:
    """The server says once that it hears runners: since when and until when is then for the tests to say."""
    return Intervals(sync_every=3600.0)


async def begun(yard: Yard, machine: Machine, **options: Any) -> AssignmentTold:
    """A command that runs on a machine."""
    await yard.enqueue(**options)
    offer = await machine.one()
    await machine.start(offer)
    return offer


async def silence(yard: Yard, machine: Machine, seconds: float) -> None:
    """Let the machine have said its last word so long ago; the server has listened all the time."""
    await yard.db.fetch(
        "update holdfast.workers set renewed_at = renewed_at - $2 * interval '1 second', "
        "contact_at = contact_at - $2 * interval '1 second', "
        "expires_at = expires_at - $2 * interval '1 second' "
        "where id = $1",
        machine.worker_id,
        seconds,
    )
    await yard.db.fetch(
        "update holdfast.servers set started_at = started_at - $1 * interval '1 second'", seconds
    )
    yard.desk.hearing.forget()


async def test_a_runner_that_was_cut_off_for_less_than_the_limit_goes_on(yard: Yard, eventually: Any) -> None:
    """It keeps working, and when it is back both lists agree."""
    offer = await begun(yard, machine := await yard.machine())
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await silence(yard, machine, 110)
    await yard.rescue()
    answer = await machine.sync(listed(offer))
    assert [(one.job, one.state) for one in answer.hold] == [(offer.job, "running")]
    assert await yard.live(offer.job) == ("running", 1, 0)


async def lose(yard: Yard, machine: Machine) -> None:
    """Let the machine's lease run out, and the leader look."""
    await silence(yard, machine, 500)
    await yard.db.fetch("update holdfast.workers set ttl = '0' where id = $1", machine.worker_id)
    # For a lease of no length every server has been silent for too long.
    await yard.db.fetch("update holdfast.servers set renewed_at = 'infinity'")
    await yard.rescue()
    await yard.db.fetch("update holdfast.servers set renewed_at = holdfast.now()")
    await yard.db.fetch("update holdfast.workers set ttl = '2 minutes' where id = $1", machine.worker_id)


@pytest.mark.parametrize(
    ("policy", "state", "failures"),
    [("retry", "available", 1), ("hold", "waiting", 1), (None, "available", 1)],
)
async def test_what_follows_a_loss_is_the_policy_of_the_job(
    yard: Yard, eventually: Any, policy: str | None, state: str, failures: int
) -> None:
    """Tried again, or held for a person."""
    options = {} if policy is None else {"on_loss": policy}
    offer = await begun(yard, machine := await yard.machine(), **options)
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await lose(yard, machine)
    assert await yard.live(offer.job) == (state, 1, failures)


async def test_a_job_that_must_not_run_twice_may_fail_instead(yard: Yard, eventually: Any) -> None:
    """Its end says why, and that nobody tried again on purpose."""
    offer = await begun(yard, machine := await yard.machine(), on_loss="fail")
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await lose(yard, machine)
    [(outcome, reason)] = await yard.db.fetch(FINISHED, offer.job)
    assert (outcome, reason) == ("failed", "worker 1 (build-1) stopped renewing its lease")


async def test_a_loss_at_the_last_attempt_is_final(yard: Yard, eventually: Any) -> None:
    """A job that takes its runners down with it does not do so for ever."""
    offer = await begun(yard, machine := await yard.machine(), max_attempts=1)
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await lose(yard, machine)
    [(outcome, reason)] = await yard.db.fetch(FINISHED, offer.job)
    assert (outcome, reason) == ("failed", "worker 1 (build-1) stopped renewing its lease")
    assert (await machine.sync(listed(offer))).hold == []


async def test_a_cancelled_job_whose_runner_is_lost_keeps_the_reason_of_its_cancel(
    yard: Yard, eventually: Any
) -> None:
    """Why it was to end is what counts; that nobody has seen its end is told behind it."""
    offer = await begun(yard, machine := await yard.machine())
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await Operator(yard.db.database, "me").jobs.cancel(offer.job, reason="too hot")
    await lose(yard, machine)
    [(outcome, reason)] = await yard.db.fetch(FINISHED, offer.job)
    assert outcome == "cancelled"
    assert reason.endswith("too hot (worker 1 (build-1) stopped renewing its lease)")


async def test_a_person_lets_a_held_job_go_on(yard: Yard, eventually: Any) -> None:
    """It waits and says for whom; a resume makes it available, unless it is cancelled."""
    offer = await begun(yard, machine := await yard.machine(), on_loss="hold")
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await lose(yard, machine)
    why = await Operator(yard.db.database, "me").jobs.why(offer.job)
    assert why is not None
    assert "held for a person" in why
    await yard.client.resume(offer.job)
    assert await yard.live(offer.job) == ("available", 1, 1)
    assert (await (await yard.machine("build-2")).one()).attempt == 2


async def test_a_lost_runner_that_comes_back_stops_what_it_lost(yard: Yard, eventually: Any) -> None:
    """It is online again, its old assignment is nobody's, and its report is kept as evidence."""
    offer = await begun(yard, machine := await yard.machine())
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await lose(yard, machine)
    answer = await machine.sync(listed(offer))
    assert (answer.hold, [one.job for one in answer.refused]) == ([], [offer.job])
    with pytest.raises(AssignmentStale):
        await machine.finish(offer)
    assert await yard.db.value("select state from holdfast.workers") == "online"
    assert (await machine.one()).attempt == 2


@pytest.mark.parametrize(
    "outage",
    [
        "delete from holdfast.servers",
        "update holdfast.servers set renewed_at = holdfast.now() - interval '31 seconds'",
        "update holdfast.servers set started_at = holdfast.now() + interval '1 minute'",
    ],
)
async def test_nobody_is_lost_while_no_server_could_have_heard_them(
    yard: Yard, eventually: Any, outage: str
) -> None:
    """An outage of the service is no death of its runners."""
    offer = await begun(yard, machine := await yard.machine())
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await silence(yard, machine, 500)
    await yard.db.fetch("update holdfast.workers set ttl = '0'")
    await yard.db.fetch("update holdfast.servers set renewed_at = holdfast.now() + interval '1 hour'")
    await yard.db.fetch(outage)
    await yard.rescue()
    assert await yard.live(offer.job) == ("running", 1, 0)


OFFERED_EARLIER = "update holdfast.assignments set offered_at = offered_at - interval '61 seconds'"
IN_CONTACT_EARLIER = "update holdfast.workers set contact_at = contact_at - interval '61 seconds'"


async def test_an_offer_that_nobody_takes_up_goes_back_unspent(yard: Yard, overseer: Overseer) -> None:
    """The runner is alive and never accepts: others may have the job."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue(max_attempts=1)
    offer = await machine.one()
    await yard.db.fetch(OFFERED_EARLIER)
    await yard.db.fetch(IN_CONTACT_EARLIER)
    await overseer.lead(await yard.lead())
    assert await yard.live(job_id) == ("available", 1, 0)
    with pytest.raises(AssignmentStale):
        await machine.accept(offer)


@pytest.mark.parametrize("came_back", [False, True])
async def test_an_offer_stays_with_a_runner_that_could_not_accept_it(
    yard: Yard, overseer: Overseer, came_back: bool
) -> None:
    """Its program may run: who is cut off, or has just come back, keeps it as it keeps the others."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue(max_attempts=1)
    offer = await machine.one()
    await yard.db.fetch(OFFERED_EARLIER)
    await yard.db.fetch(IN_CONTACT_EARLIER)
    if came_back:
        await yard.db.fetch("update holdfast.workers set contact_at = holdfast.now()")
    else:
        await yard.db.fetch("update holdfast.workers set renewed_at = renewed_at - interval '61 seconds'")
    await overseer.lead(await yard.lead())
    assert await yard.live(job_id) == ("claimed", 1, 0)
    assert (await machine.finish(offer, "completed")).outcome == "completed"


async def test_an_accepted_offer_stays_however_old(yard: Yard, overseer: Overseer) -> None:
    """Who has said so has it."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    await machine.accept(await machine.one())
    await yard.db.fetch("update holdfast.assignments set offered_at = offered_at - interval '1 day'")
    await overseer.lead(await yard.lead())
    assert await yard.live(job_id) == ("claimed", 1, 0)


@pytest.fixture
def overseer(yard: Yard) -> Overseer:
    """The duty that looks after assignments."""
    return yard.duty(Overseer)


STAND_STILL = (
    "update holdfast.assignments set progressed_at = progressed_at - interval '40 seconds', "
    "offered_at = offered_at - interval '40 seconds'"
)


async def test_a_job_that_stands_still_on_a_live_runner_is_taken_away(yard: Yard, overseer: Overseer) -> None:
    """Its runner speaks, it does not: after its stall limit it is tried elsewhere."""
    offer = await begun(yard, machine := await yard.machine(), stall_limit=30)
    await yard.db.fetch(STAND_STILL)
    await yard.db.fetch("update holdfast.workers set contact_at = contact_at - interval '1 minute'")
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("available", 1, 1)
    reason = await yard.db.value("select reason from holdfast.attempts where job_id = $1", offer.job)
    assert reason == "no progress for 30 s on runner build-1"
    assert (await machine.sync(listed(offer))).hold == []


async def test_an_offer_that_runs_out_keeps_no_stalled_job(yard: Yard, overseer: Overseer) -> None:
    """However many offers nobody takes up: a look sees to both."""
    offer = await begun(yard, await yard.machine(), stall_limit=30)
    await yard.db.fetch(STAND_STILL)
    await yard.db.fetch("update holdfast.workers set contact_at = contact_at - interval '1 minute'")
    [unaccepted] = await yard.enqueue(max_attempts=1)
    await (await yard.machine("deaf")).one()
    await yard.db.fetch(f"{OFFERED_EARLIER} where accepted_at is null")
    await yard.db.fetch(IN_CONTACT_EARLIER)
    await overseer.lead(await yard.lead())
    assert await yard.live(unaccepted) == ("available", 1, 0)
    assert await yard.live(offer.job) == ("available", 1, 1)


@pytest.mark.parametrize("word", [{"alive": True}, {"progress": 0.5}, {"note": "linking"}])
async def test_any_sign_of_life_turns_the_clock_back(yard: Yard, overseer: Overseer, word: Any) -> None:
    """Progress, a note, or just the word that there was output."""
    offer = await begun(yard, machine := await yard.machine(), stall_limit=30)
    await yard.db.fetch(STAND_STILL)
    await yard.db.fetch("update holdfast.workers set contact_at = contact_at - interval '1 minute'")
    await machine.sync(listed(offer, **word))
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("running", 1, 0)


async def test_what_a_job_logs_turns_the_clock_back(yard: Yard, overseer: Overseer) -> None:
    """A command that writes is alive, though its runner says no more of it."""
    offer = await begun(yard, machine := await yard.machine(), stall_limit=30)
    await yard.db.fetch(STAND_STILL)
    await yard.db.fetch("update holdfast.workers set contact_at = contact_at - interval '1 minute'")
    await machine.log(offer, 0, b"linking\n")
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("running", 1, 0)


async def test_a_silence_of_the_network_is_not_a_silence_of_the_job(yard: Yard, overseer: Overseer) -> None:
    """While the runner is not heard nobody can tell, and when it is back the clock begins anew."""
    offer = await begun(yard, machine := await yard.machine(), stall_limit=30)
    await yard.db.fetch(STAND_STILL)
    await silence(yard, machine, 60)
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("running", 1, 0)
    await machine.sync(listed(offer))
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("running", 1, 0)


async def test_a_job_without_a_stall_limit_may_be_silent_for_ever(yard: Yard, overseer: Overseer) -> None:
    """Some tools are rightly silent."""
    offer = await begun(yard, await yard.machine())
    await yard.db.fetch("update holdfast.assignments set progressed_at = '-infinity'")
    await overseer.lead(await yard.lead())
    assert await yard.live(offer.job) == ("running", 1, 0)


async def test_a_runner_leaves_in_good_order(yard: Yard) -> None:
    """Only with empty hands; then it is offline at once."""
    offer = await begun(yard, machine := await yard.machine())
    with pytest.raises(RunnerHolding):
        await machine.leave()
    await machine.finish(offer)
    await machine.leave()
    assert await yard.db.value("select state from holdfast.workers") == "offline"


async def test_the_older_of_two_registrations_is_told_so(yard: Yard) -> None:
    """It must not go on as the same runner."""
    older = await yard.machine()
    await older.sync()
    await yard.machine()
    with pytest.raises(RunnerSuperseded):
        await older.sync()


async def test_a_server_that_was_killed_hears_nobody(yard: Yard, eventually: Any) -> None:
    """A runner that has had nobody to speak to for longer than its lease keeps what it holds."""
    offer = await begun(yard, machine := await yard.machine())
    await eventually(lambda: yard.db.value("select count(*) from holdfast.servers"))
    await silence(yard, machine, 500)
    await yard.db.fetch("update holdfast.workers set ttl = '1 ms' where id = $1", machine.worker_id)
    # Of a server that is there no word would be older than a twelfth of the lease.
    await yard.db.fetch("update holdfast.servers set renewed_at = holdfast.now() - interval '1 second'")
    await yard.rescue()
    assert await yard.live(offer.job) == ("running", 1, 0)
