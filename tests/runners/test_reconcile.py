"""Sync: the runner's list and the server's list, side by side, whatever the network did in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.job import JobState
from holdfast.model.runner import Held
from holdfast.rules.reconcile import reconcile
from holdfast.runners.messages import Report
from tests.runners.conftest import Yard, fence, listed


def held(job_id: int, *, accepted: bool, accepted_by: int = 1) -> Held:
    """An assignment as the server has it."""
    return Held(1, job_id, 1, JobState.CLAIMED, accepted, accepted_by, None, False)


HELD = st.lists(
    st.builds(held, st.integers(1, 8), accepted=st.booleans(), accepted_by=st.integers(0, 9)),
    unique_by=lambda one: one.job_id,
)
LISTED = st.sets(st.tuples(st.integers(1, 8), st.integers(1, 2)))


@given(HELD, LISTED, st.none() | st.integers(1, 9))
def test_every_assignment_has_one_fate(server: list[Held], runner: set[tuple[int, int]], number: int) -> None:
    """What both have stays; the rest is missing, unseen, or too new to judge."""
    compared = reconcile(server, runner, number)
    missing = {one.job_id for one in compared.missing}
    unseen = {one.job_id for one in compared.unseen}
    assert not missing & unseen
    for one in server:
        known = (one.job_id, one.attempt) in runner
        newer = number is not None and one.accepted_by >= number
        assert (one.job_id in unseen) is (not known and not one.accepted)
        assert (one.job_id in missing) is (not known and one.accepted and not newer)


async def test_an_assignment_that_is_missing_without_an_end_is_requeued_once(yard: Yard) -> None:
    """It had begun, so its loss counts as a failure; the next sync finds nothing to take any more."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    await machine.start(offer)
    await machine.sync()
    await machine.sync()
    assert await yard.live(job_id) == ("available", 1, 1)
    [reason] = await yard.db.fetch("select outcome, reason from holdfast.attempts where job_id = $1", job_id)
    assert reason == ("lost", "runner build-1 does not hold it any more and has reported no end")


async def test_what_a_runner_has_ended_while_it_was_cut_off_says_so(yard: Yard) -> None:
    """It was told to end what another one is going to get, and nobody can report that."""
    machine = await yard.machine()
    await yard.enqueue()
    offer = await machine.one()
    await machine.start(offer)
    await yard.db.fetch("update holdfast.workers set renewed_at = renewed_at - interval '5 minutes'")
    yard.desk.hearing.forget()
    await machine.sync()
    [(reason,)] = await yard.db.fetch("select reason from holdfast.attempts where job_id = $1", offer.job)
    assert reason.startswith("runner build-1 does not hold it any more")
    assert "out of contact until" in reason


async def test_an_accepted_one_that_had_not_begun_is_given_back_unspent(yard: Yard) -> None:
    """Nothing was done, so nothing is counted."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue(max_attempts=1)
    await machine.accept(await machine.one())
    await machine.sync()
    assert await yard.live(job_id) == ("available", 1, 0)


async def test_an_offer_that_was_never_confirmed_is_not_requeued(yard: Yard) -> None:
    """It is shown again instead, as the same attempt: neither lost nor doubled."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    for _ in range(3):
        answer = await machine.sync(free=1)
        assert [(one.job, one.attempt, one.state) for one in answer.hold] == [(job_id, 1, "offered")]
        assert answer.hold[0].assignment is not None
        assert answer.hold[0].assignment.spec_sha256 == offer.spec_sha256
    assert await yard.live(job_id) == ("claimed", 1, 0)


async def test_a_finished_one_that_is_missing_stays_finished(yard: Yard) -> None:
    """Its end was reported before it left the list."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    await machine.finish(offer)
    await machine.sync()
    assert await yard.state(job_id) == "completed"


async def test_a_sync_that_is_older_than_the_acceptance_takes_nothing(yard: Yard) -> None:
    """The network delivered it late; a list that was made before cannot hold what came after."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    late = machine.count()
    await machine.start(offer)
    answer = await machine.sync(number=late)
    assert [(one.job, one.state) for one in answer.hold] == [(job_id, "running")]
    assert await yard.live(job_id) == ("running", 1, 0)


async def test_the_same_sync_twice_is_the_same_as_once(yard: Yard) -> None:
    """A repeated request changes nothing and is answered with what is so."""
    machine = await yard.machine(slots=2)
    await yard.enqueue(2)
    mine = await machine.one()
    first = await machine.sync(listed(mine), free=1)
    again = await machine.sync(listed(mine), free=1, number=machine.number)
    assert [(one.job, one.attempt, one.state) for one in first.hold] == [
        (one.job, one.attempt, one.state) for one in again.hold
    ]


async def test_an_end_in_the_list_is_an_end(yard: Yard) -> None:
    """The report rides on the sync, and may ride on the next one too."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    ended = listed(offer, "ended", report=Report(outcome="completed", result=7))  # type: ignore[arg-type]
    for _ in range(2):
        answer = await machine.sync(ended)
        assert (answer.hold, answer.refused) == ([], [])
    assert await yard.client.wait(job_id, timeout=5) == 7


async def test_after_a_restart_the_runner_says_what_it_still_holds(yard: Yard) -> None:
    """A new term of the same runner keeps what it lists, and what it has forgotten goes back."""
    before = await yard.machine(slots=2)
    await yard.enqueue(2)
    kept, forgotten = await before.claim(count=2)
    await before.start(kept)
    await before.start(forgotten)
    after = await yard.machine(slots=2)
    assert after.registered.runner.id == before.registered.runner.id
    assert after.registered.runner.term == before.registered.runner.term + 1
    answer = await after.sync(listed(kept))
    assert [(one.job, one.attempt) for one in answer.hold] == [fence(kept)]
    assert await yard.live(forgotten.job) == ("available", 1, 1)
    # An acceptance of the former term, whose requests were counted differently, protects nothing.
    await after.sync(number=1)
    assert await yard.live(kept.job) == ("available", 1, 1)
