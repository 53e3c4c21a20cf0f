"""Ends: reports that count, that come twice, that come too late, and cancels on their way."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.errors import AssignmentStale, JobCancelled, JobFailed, JobNotFound
from holdfast.model.runner import Rung
from holdfast.rules.reports import ReportedOutcome
from holdfast.runners.messages import AssignmentTold, Report
from holdfast.store import prune
from holdfast.store.prune import Retention
from holdfast.worker import wake_level
from tests.runners.conftest import Machine, Yard, listed

EVIDENCE = "select evidence -> 0 -> 'report' ->> 'outcome' from holdfast.assignments where job_id = $1"
RUNGS = "select array(select jsonb_object_keys(rungs) order by 1) from holdfast.assignments where job_id = $1"
ASLEEP = "select count(*) = 1 from holdfast.workers where wakes_below = 10 and term is null"


# What a sequence has counted stays though the transaction goes.
GIVES_UP_ONCE = """
create function holdfast.give_up() returns trigger language plpgsql as $$
begin
    if nextval('holdfast.tries') = 1 then
        raise exception 'deadlock detected' using errcode = 'deadlock_detected';
    end if;
    return new;
end
$$"""
GIVES_UP = """
create trigger gives_up before insert on holdfast.finished_jobs
for each row execute function holdfast.give_up()"""


async def begun(yard: Yard, machine: Machine, **options: Any) -> AssignmentTold:
    """A command that runs on a machine."""
    await yard.enqueue(**options)
    offer = await machine.one()
    await machine.start(offer)
    return offer


async def test_a_failed_assignment_is_retried_by_the_policy_of_its_job(yard: Yard) -> None:
    """A failure is counted and the job rests for its backoff; the runner is told so."""
    offer = await begun(yard, machine := await yard.machine())
    told = await machine.finish(offer, "failed", reason="exit code 2", result={"exit_code": 2})
    assert told.outcome == "retried"
    assert await yard.live(offer.job) == ("scheduled", 1, 1)


@pytest.mark.parametrize(("outcome", "told"), [("completed", "completed"), ("failed", "retried")])
async def test_a_retry_policy_that_cannot_be_read_keeps_no_report_out(
    yard: Yard, outcome: str, told: str
) -> None:
    """Plain SQL can write it; refused, what is done would be lost and done again."""
    offer = await begun(yard, machine := await yard.machine())
    policy = """update holdfast.jobs set retry = '{"kind": "constant", "rest": 30}'"""
    await yard.db.fetch(policy)
    assert (await machine.finish(offer, outcome)).outcome == told


@pytest.mark.parametrize(("options", "report"), [({"max_attempts": 1}, {}), ({}, {"retry": False})])
async def test_the_last_failure_is_final(yard: Yard, options: Any, report: Any) -> None:
    """At max_attempts, or where the runner knows that no retry can help."""
    offer = await begun(yard, machine := await yard.machine(), **options)
    told = await machine.finish(offer, "failed", reason="exit code 2", error="make: no rule", **report)
    assert told.outcome == "failed"
    with pytest.raises(JobFailed, match="exit code 2"):
        await yard.client.wait(offer.job, timeout=5)


async def test_a_drained_runner_hands_back_unspent(yard: Yard) -> None:
    """Released costs no attempt, even the last one."""
    offer = await begun(yard, machine := await yard.machine(), max_attempts=1)
    assert (await machine.finish(offer, "released", reason="drain")).outcome == "released"
    assert await yard.live(offer.job) == ("available", 1, 0)


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "released"])
async def test_the_same_report_again_is_the_same_answer(yard: Yard, outcome: str) -> None:
    """A lost answer costs nothing: the second one says that it is a repetition."""
    offer = await begun(yard, machine := await yard.machine())
    first = await machine.finish(offer, outcome)
    again = await machine.finish(offer, outcome)
    assert (again.outcome, first.repeated, again.repeated) == (first.outcome, False, True)


async def test_a_contradicting_report_is_refused_and_kept(yard: Yard) -> None:
    """What was accepted stays; the runner is told the truth, people see what it said."""
    offer = await begun(yard, machine := await yard.machine())
    await machine.finish(offer, "completed")
    with pytest.raises(AssignmentStale) as refused:
        await machine.finish(offer, "failed", reason="exit code 1")
    assert (refused.value.state, refused.value.outcome) == ("completed", "completed")
    assert await yard.db.value(EVIDENCE, offer.job) == "failed"
    assert await yard.state(offer.job) == "completed"


async def test_two_reports_at_once_end_it_once(yard: Yard) -> None:
    """They fly together, and still the first one counts."""
    offer = await begun(yard, machine := await yard.machine())
    told = await asyncio.gather(*(machine.finish(offer, "completed") for _ in range(5)))
    assert sorted(one.repeated for one in told) == [False, True, True, True, True]
    told_late = await asyncio.gather(machine.finish(offer, "failed"), return_exceptions=True)
    assert isinstance(told_late[0], AssignmentStale)


async def test_a_report_whose_transaction_is_given_up_in_a_deadlock_is_taken_all_the_same(yard: Yard) -> None:
    """Others may lock the same jobs in another order: the runner need not know."""
    offer = await begun(yard, machine := await yard.machine())
    await yard.db.fetch("create sequence holdfast.tries")
    await yard.db.fetch(GIVES_UP_ONCE)
    await yard.db.fetch(GIVES_UP)
    told = await machine.finish(offer)
    assert (told.outcome, told.repeated) == ("completed", False)


async def test_the_report_of_another_runner_is_refused(yard: Yard) -> None:
    """A runner speaks for its own assignments only, and nothing of it is kept with others'."""
    offer = await begun(yard, await yard.machine())
    stranger = await yard.machine("build-2")
    with pytest.raises(AssignmentStale):
        await stranger.finish(offer)
    with pytest.raises(AssignmentStale):
        await stranger.start(offer)
    assert await yard.live(offer.job) == ("running", 1, 0)
    assert await yard.db.value(EVIDENCE, offer.job) is None


async def test_the_former_attempt_on_the_same_runner_is_fenced(yard: Yard) -> None:
    """The runner got the job again; its older execution can still report, and changes nothing."""
    old = await begun(yard, machine := await yard.machine())
    await machine.sync()
    new = await machine.one()
    assert (new.job, new.attempt) == (old.job, 2)
    for late in (machine.finish(old), machine.start(old), machine.accept(old)):
        with pytest.raises(AssignmentStale) as stale:
            await late
        assert (stale.value.state, stale.value.now, stale.value.outcome) == ("claimed", 2, "lost")
    assert await yard.live(old.job) == ("claimed", 2, 1)
    evidence = "select evidence -> 0 -> 'report' ->> 'outcome' from holdfast.assignments where attempt = 1"
    assert await yard.db.value(evidence) == "completed"


async def test_a_job_that_never_was_is_unknown(yard: Yard) -> None:
    """The truth about it is that there is none."""
    offer = await begun(yard, machine := await yard.machine())
    with pytest.raises(JobNotFound):
        await machine.progress(AssignmentTold(**{**_fields(offer), "job": 999_999}))


def _fields(told: AssignmentTold) -> dict[str, Any]:
    return {name: getattr(told, name) for name in told.__struct_fields__}


async def test_a_cancel_reaches_a_runner_whose_sync_waits(yard: Yard) -> None:
    """It is pushed: the sync is answered at once with the order, and what was delivered is written down."""
    offer = await begun(yard, machine := await yard.machine())
    waiting = asyncio.create_task(machine.sync(listed(offer), wait=30))
    await yard.desk_hears(machine)
    assert not await yard.client.cancel(offer.job, reason="no longer wanted")
    async with asyncio.timeout(2):
        answer = await waiting
    [order] = [one.cancel for one in answer.hold]
    assert order is not None
    assert (order.cause, order.reason) == ("requested", "no longer wanted")
    assert await yard.db.value(RUNGS, offer.job) == ["delivered", "requested"]


async def test_every_rung_of_a_cancel_is_written_down_once(yard: Yard) -> None:
    """requested, delivered, acknowledged, interrupted, killed, ended: each with the time it had first."""
    offer = await begun(yard, machine := await yard.machine())
    await yard.client.cancel(offer.job)
    moments: dict[str, Any] = {}
    for rung in (Rung.ACKNOWLEDGED, Rung.INTERRUPTED, Rung.KILLED, Rung.INTERRUPTED):
        stand = await machine.progress(offer, rung=rung)
        assert stand.cancel is not None
        assert stand.cancel.reason == "cancelled by application"
        found = await yard.db.value(
            "select rungs ->> $2 from holdfast.assignments where job_id = $1", offer.job, rung
        )
        assert moments.setdefault(rung, found) == found
    await machine.finish(offer, "cancelled", reason="SIGKILL")
    assert await yard.db.value(RUNGS, offer.job) == sorted([*moments, "delivered", "requested"])
    with pytest.raises(JobCancelled, match="SIGKILL"):
        await yard.client.wait(offer.job, timeout=5)


async def test_rungs_that_were_taken_at_once_are_told_by_the_last(yard: Yard) -> None:
    """A runner interrupts as soon as it has heard of a cancel; of a timeout nobody has heard before."""
    offer = await begun(yard, machine := await yard.machine())
    await machine.progress(offer, rung=Rung.INTERRUPTED)
    assert await yard.db.value(RUNGS, offer.job) == ["interrupted"]
    await yard.client.cancel(offer.job)
    await machine.progress(offer, rung=Rung.KILLED)
    told = ["acknowledged", "delivered", "interrupted", "killed", "requested"]
    assert await yard.db.value(RUNGS, offer.job) == told


@pytest.mark.parametrize("in_a_sync", [False, True])
async def test_an_end_that_overtakes_the_syncs_tells_the_rungs(yard: Yard, in_a_sync: bool) -> None:
    """A program that obeys at once may have ended before any sync has said that it was interrupted."""
    offer = await begun(yard, machine := await yard.machine())
    await yard.client.cancel(offer.job)
    if in_a_sync:
        report = Report(outcome=ReportedOutcome.CANCELLED, rung=Rung.INTERRUPTED)
        await machine.sync(listed(offer, "ended", report=report))
    else:
        await machine.finish(offer, "cancelled", rung=Rung.INTERRUPTED)
    assert await yard.state(offer.job) == "cancelled"
    told = ["acknowledged", "delivered", "interrupted", "requested"]
    assert await yard.db.value(RUNGS, offer.job) == told


async def test_an_end_leaves_the_rungs_that_were_told(yard: Yard) -> None:
    """Each keeps the time it had first, and an end that says nothing of them takes none away."""
    machine = await yard.machine(slots=2)
    await yard.enqueue(2)
    moments = "select rungs ->> 'interrupted' from holdfast.assignments where job_id = $1"
    for offer, more in zip(await machine.claim(count=2), ({"rung": Rung.KILLED}, {}), strict=True):
        await machine.start(offer)
        await yard.client.cancel(offer.job)
        await machine.progress(offer, rung=Rung.INTERRUPTED)
        first = await yard.db.value(moments, offer.job)
        await machine.finish(offer, "cancelled", **more)
        assert first is not None
        assert await yard.db.value(moments, offer.job) == first
        assert ("killed" in await yard.db.value(RUNGS, offer.job)) is bool(more)


async def test_whatever_call_comes_next_brings_the_cancel(yard: Yard) -> None:
    """A request is a row: it is in every answer until the attempt has ended."""
    offer = await begun(yard, machine := await yard.machine())
    await yard.client.cancel(offer.job)
    for call in (machine.accept(offer), machine.start(offer), machine.progress(offer, progress=0.1)):
        assert (await call).cancel is not None


async def test_what_was_done_is_done_also_after_a_cancel(yard: Yard) -> None:
    """The record says what really happened."""
    offer = await begun(yard, machine := await yard.machine())
    await yard.client.cancel(offer.job)
    assert (await machine.finish(offer, "completed", result=1)).outcome == "completed"
    assert await yard.state(offer.job) == "completed"


async def test_nothing_is_tried_again_after_a_cancel(yard: Yard) -> None:
    """A failure or a release ends it as cancelled."""
    machine = await yard.machine(slots=2)
    await yard.enqueue(2)
    for outcome, offer in zip(("failed", "released"), await machine.claim(count=2), strict=True):
        await machine.start(offer)
        await yard.client.cancel(offer.job)
        assert (await machine.finish(offer, outcome)).outcome == "cancelled"
        assert await yard.state(offer.job) == "cancelled"


async def test_a_runner_that_stops_a_job_unasked_has_failed_at_it(yard: Yard) -> None:
    """Nobody wanted it cancelled, so it is not."""
    offer = await begun(yard, machine := await yard.machine())
    assert (await machine.finish(offer, "cancelled")).outcome == "retried"
    assert await yard.live(offer.job) == ("scheduled", 1, 1)


async def test_a_handler_may_want_no_more_of_its_job(yard: Yard) -> None:
    """Its runner says so: cancelled, and not to be taken up again."""
    offer = await begun(yard, machine := await yard.machine())
    ended = await machine.finish(offer, "cancelled", retry=False)
    assert (ended.outcome, await yard.state(offer.job)) == ("cancelled", "cancelled")
    assert (await yard.client.job(offer.job)).reason == "cancelled by its runner"


async def test_a_cancel_of_an_offer_that_nobody_accepted_is_told(yard: Yard) -> None:
    """It is held already, so its runner hears of both at once and may give it back."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    assert not await yard.client.cancel(job_id)
    answer = await machine.sync(listed(offer, "accepted"))
    assert answer.hold[0].cancel is not None
    assert (await machine.finish(offer, "cancelled")).outcome == "cancelled"


async def test_a_cancel_is_answered_by_where_the_job_stands(yard: Yard) -> None:
    """Queued it ends at once; offered or running its runner is asked; ended it is refused."""
    machine = await yard.machine(slots=3)
    queued = (await yard.enqueue(4))[-1]
    offered, running, ended = await machine.claim(count=3)
    await machine.start(running)
    await machine.finish(ended)
    answers = [
        await yard.http.post(f"/api/v1/jobs/{job_id}/cancel")
        for job_id in (queued, offered.job, running.job, ended.job, queued)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 409, 409]
    assert [answer.json()["ended"] for answer in answers[:3]] == [True, False, False]
    assert {answer.json()["type"] for answer in answers[3:]} == {"urn:holdfast:problem:state-conflict"}
    told = (await machine.sync(listed(offered, "accepted"), listed(running))).hold
    assert [(one.job, one.cancel is not None) for one in told] == [(offered.job, True), (running.job, True)]


async def test_nothing_of_a_pruned_job_is_left(yard: Yard) -> None:
    """Placement, assignment, tokens and artifacts go with the job."""
    offer = await begun(yard, machine := await yard.machine(), labels=[])
    await machine.keep(offer, "log.txt", b"data")
    await machine.finish(offer)
    everything = Retention(("completed",), None, datetime.now(UTC) + timedelta(days=1))
    await yard.db.database.run(prune.prune_jobs(await yard.lead(), everything, limit=10))
    for table in ("jobs", "placements", "assignments", "artifacts", "finished_jobs"):
        assert await yard.db.value(f"select count(*) from holdfast.{table}") == 0, table  # noqa: S608 - fixed names
    assert await yard.db.value("select count(*) from holdfast.tokens where job_id is not null") == 0


async def test_room_that_a_runner_makes_is_told_to_workers_that_sleep(
    yard: Yard, work: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One limit for both: what waits for a worker begins when the command has ended, not at the next poll."""
    monkeypatch.setattr(wake_level, "LOOKS", (600.0,))
    app = holdfast.App()

    @app.job
    async def deploy() -> str:
        return "it has begun"

    await Operator(yard.db.database, "tester").queues.limit("default", 1, create=True)
    offer = await begun(yard, machine := await yard.machine())
    await work(app, poll=600.0)
    waiting = await yard.client.enqueue(deploy.job())
    await eventually(lambda: yard.db.value(ASLEEP))
    await machine.finish(offer)
    assert await yard.client.wait(waiting.id, timeout=20) == "it has begun"


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("key", [None, "k"], ids=["limit of the queue", "key"])
async def test_room_that_a_runner_makes_is_told_to_runners_that_wait(yard: Yard, key: str | None) -> None:
    """The one that has made it may never ask again."""
    await Operator(yard.db.database, "tester").queues.limit("default", None if key else 1, create=True)
    offer = await begun(yard, machine := await yard.machine(), concurrency_key=key)
    await yard.enqueue(concurrency_key=key)
    other = await yard.machine("build-2")
    waiting = asyncio.create_task(other.claim(wait=30))
    await yard.desk_hears(other)
    heard_at = time.monotonic()
    yard.desk.dispatcher.wake()
    async with asyncio.timeout(10):
        while yard.desk.dispatcher.turned_at < heard_at:  # noqa: ASYNC110 - that it found nothing is told to nobody
            await asyncio.sleep(0.005)
    await machine.finish(offer)
    async with asyncio.timeout(20):
        [given] = await waiting
    assert given.job != offer.job
