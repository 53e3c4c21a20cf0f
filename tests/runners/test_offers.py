"""Offers: what a runner is given, and that nothing is lost or doubled on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.client.operator import Operator
from holdfast.client.token_operator import token_hash
from holdfast.errors import AssignmentStale, TokenInvalid
from holdfast.rules.backoff import Constant
from holdfast.runners.hearing import RunnerCaller
from holdfast.store import offers
from holdfast.web.express import HUNG_UP
from tests.runners.conftest import Machine, OpenYard, Yard, fence, listed


async def held_back(yard: Yard, machine: Machine, verb: str) -> asyncio.Task[Any]:
    """A claim or a sync with room for one, which the desk has heard and does not answer yet."""
    asked = machine.claim(wait=30) if verb == "claim" else machine.sync(free=1, wait=30)
    waiting = asyncio.create_task(asked)
    await yard.desk_hears(machine)
    return waiting


async def test_an_offer_tells_of_a_policy_that_its_job_has_of_its_own(yard: Yard) -> None:
    """A runner knows what its kinds say of failures, and that this job says something else."""
    machine = await yard.machine(slots=2)
    [plain] = await yard.enqueue()
    [own] = await yard.enqueue(retry=Constant(timedelta(seconds=30)))
    told = {offer.job: offer.retry for offer in await machine.claim(count=2)}
    assert told == {plain: None, own: {"kind": "constant", "delay": 30, "jitter": 0}}


async def test_a_command_is_offered_with_its_spec_and_a_token_of_its_own(yard: Yard) -> None:
    """The runner gets exactly what was enqueued, and can prove it."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue(args='{"argv": ["make", "all"]}', timeout=7)
    offer = await machine.one()
    assert (offer.job, offer.attempt, offer.kind, offer.queue) == (job_id, 1, "command", "default")
    assert msgspec.json.decode(offer.spec or "") == {
        "kind": "command",
        "args": {"argv": ["make", "all"]},
        "timeout": 7,
    }
    assert sha256((offer.spec or "").encode()).hexdigest() == offer.spec_sha256
    assert offer.token.startswith("holdfast_")
    assert await yard.live(job_id) == ("claimed", 1, 0)


async def test_offer_accept_start_finish(yard: Yard) -> None:
    """The four steps of an assignment, each seen on the job."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    offer = await machine.one()
    assert (await machine.accept(offer)).state == "accepted"
    assert (await machine.start(offer)).state == "running"
    assert (await machine.finish(offer, result={"exit_code": 0})).outcome == "completed"
    assert await yard.client.wait(job_id, timeout=5) == {"exit_code": 0}


async def test_an_offer_carries_the_trace_of_its_enqueue(yard: Yard) -> None:
    """What a runner measures belongs to what its job was enqueued for."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    machine = await yard.machine()
    await yard.enqueue(trace=trace)
    assert (await machine.one()).trace == trace


async def test_an_offer_whose_answer_was_lost_is_offered_again(yard: Yard) -> None:
    """It is the same attempt, however often the runner asks, until it accepts."""
    machine = await yard.machine(slots=2)
    await yard.enqueue(2)
    first, again = await machine.one(), await machine.one()
    assert fence(first) == fence(again)
    await machine.accept(first)
    assert fence(await machine.one()) != fence(first)


@pytest.mark.usefixtures("only_woken")
async def test_a_sync_that_waits_is_woken_by_new_work(yard: Yard) -> None:
    """The answer is held back while there is nothing, and no longer."""
    machine = await yard.machine()
    waiting = asyncio.create_task(machine.sync(free=1, wait=30))
    await yard.desk_hears(machine)
    [job_id] = await yard.enqueue()
    async with asyncio.timeout(5):
        answer = await waiting
    assert [(one.job, one.state) for one in answer.hold] == [(job_id, "offered")]
    assert answer.hold[0].assignment is not None


async def test_a_sync_lists_what_the_runner_should_hold(yard: Yard) -> None:
    """What it holds rightly is confirmed, what is new is added, what is not its own is missing."""
    machine = await yard.machine(slots=3)
    await yard.enqueue(2)
    mine, done = await machine.claim(count=2)
    await machine.finish(done)
    [new] = await yard.enqueue()
    answer = await machine.sync(listed(mine), listed(done), free=1)
    assert [(one.job, one.state) for one in answer.hold] == [(mine.job, "running"), (new, "offered")]
    assert [(one.job, one.truth and one.truth.state) for one in answer.refused] == [(done.job, "completed")]


@pytest.mark.usefixtures("only_woken")
async def test_a_sync_shows_no_more_offers_than_are_free(yard: Yard) -> None:
    """What there is no room for is no news either: the answer is held back, as the runner wished."""
    machine = await yard.machine(slots=2)
    await yard.enqueue(2)
    first, second = await machine.claim(count=2)
    assert [(one.job, one.state) for one in (await machine.sync(free=1)).hold] == [(first.job, "offered")]
    waiting = asyncio.create_task(machine.sync(free=0, wait=30))
    await yard.desk_hears(machine)
    # A cancel that goes with it is not told either, and so it is not delivered.
    await yard.client.cancel(second.job)
    async with asyncio.timeout(5):
        assert (await waiting).hold == []
    answer = await machine.sync(listed(first, "accepted"), free=1)
    assert [(one.job, one.cancel is not None) for one in answer.hold] == [
        (first.job, False),
        (second.job, True),
    ]
    rungs = "select rungs ? 'delivered' from holdfast.assignments where job_id = $1"
    assert await yard.db.value(rungs, second.job)


@pytest.mark.usefixtures("only_woken")
async def test_a_runner_that_is_going_gives_back_what_it_has_not_accepted(yard: Yard) -> None:
    """The offer has crossed its word: another runner gets the job at once, and nothing is counted."""
    machine = await yard.machine(slots=2)
    await yard.enqueue()
    busy = await machine.one()
    await machine.start(busy)
    [job_id] = await yard.enqueue()
    crossed = await machine.one()
    answer = await machine.sync(listed(busy), free=0, draining=True)
    assert [(one.job, one.state) for one in answer.hold] == [(busy.job, "running")]
    assert await yard.live(job_id) == ("available", 1, 0)
    with pytest.raises(AssignmentStale):
        await machine.accept(crossed)
    other = await yard.machine("build-2")
    assert fence(await other.one()) == (job_id, 2)


async def test_what_a_runner_that_leaves_has_not_accepted_goes_back(yard: Yard) -> None:
    """It holds nothing, so it may go; it is offline, and is offered nothing more."""
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    await machine.one()
    await machine.leave()
    assert await yard.live(job_id) == ("available", 1, 0)
    assert await yard.db.value("select state from holdfast.workers") == "offline"
    [released] = await yard.db.fetch(
        "select outcome, reason from holdfast.attempts where job_id = $1", job_id
    )
    assert released == ("released", "runner build-1 takes nothing new")


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("verb", ["claim", "sync"])
async def test_a_runner_that_has_left_stays_away(yard: Yard, verb: str) -> None:
    """A request of it that still waited, and that nobody hears, does not bring it back as it runs out."""
    machine = await yard.machine()
    waiting = await held_back(yard, machine, verb)
    await machine.leave()
    yard.desk.dispatcher.ring(machine.worker_id)
    await waiting
    assert await yard.db.value("select state from holdfast.workers") == "offline"
    await machine.sync()
    assert await yard.db.value("select state from holdfast.workers") == "online"


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("verb", ["claim", "sync"])
async def test_a_runner_that_has_hung_up_is_offered_nothing(yard: Yard, verb: str) -> None:
    """Its request ends with its connection: a job would be offered to nobody, and rest for a minute."""
    machine, other = await yard.machine(), await yard.machine("build-2")
    waiting = await held_back(yard, machine, verb)
    waiting.cancel()
    await yard.probe.wait_for("request.ended", lambda fields: fields["status"] == HUNG_UP)
    assert machine.worker_id not in yard.desk.dispatcher.waiting
    [job_id] = await yard.enqueue()
    assert (await other.claim(wait=30))[0].job == job_id


@pytest.mark.usefixtures("only_woken")
async def test_a_sync_shows_what_another_server_has_offered_meanwhile(
    yard: Yard, open_yard: OpenYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is this runner's, there is room for it, and the answer that had it may have been lost."""
    machine, other = await yard.machine(), await open_yard()
    monkeypatch.setattr(yard.desk.dispatcher, "notified", lambda *_: None)
    waiting = await held_back(yard, machine, "sync")
    await yard.enqueue()
    lost = await machine.at(other, machine.number).one()
    yard.desk.dispatcher.ring(machine.worker_id)
    [hold] = (await waiting).hold
    assert (hold.job, hold.attempt, hold.state) == (lost.job, lost.attempt, "offered")
    assert hold.assignment is not None
    assert hold.assignment.token != lost.token


async def test_an_offer_that_is_accepted_while_it_expires_stays(yard: Yard) -> None:
    """The leader has read it as silent, the runner accepts it, and only then the leader would take it."""
    machine = await yard.machine()
    await yard.enqueue()
    offer = await machine.one()
    await yard.db.fetch("update holdfast.assignments set offered_at = '-infinity'")
    await yard.db.fetch("update holdfast.workers set contact_at = contact_at - interval '1 minute'")
    term = await yard.lead()
    expire = offers.expire_offers(term, 10.0, 10)
    late = "l.state = 'claimed' and holdfast.late()"
    slow = replace(expire, text=expire.text.replace("l.state = 'claimed'", late))
    await yard.db.fetch(
        "create function holdfast.late() returns boolean language plpgsql volatile as "
        "$$ begin perform pg_advisory_xact_lock(4711); return true; end $$"
    )
    async with yard.db.database.transaction() as holder:
        await holder.execute("select pg_advisory_xact_lock(4711)")
        expiring = asyncio.create_task(yard.db.database.run(slow))
        waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"
        async with asyncio.timeout(10):
            while not await holder.fetchval(waits):
                pass
        await machine.accept(offer)
    assert await expiring == []
    assert await yard.live(offer.job) == ("claimed", 1, 0)
    assert (await machine.start(offer)).state == "running"


async def revoke(yard: Yard, machine: Machine) -> None:
    """Revoke the runner's own token, as an operator does."""
    token_id = await yard.db.value("select token_id from holdfast.workers where id = $1", machine.worker_id)
    await Operator(yard.db.database, "test").tokens.revoke(token_id)


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("verb", ["claim", "sync"])
async def test_a_request_that_waits_ends_when_its_token_is_revoked(yard: Yard, verb: str) -> None:
    """At once, by a refusal: a runner that was shut out takes nothing for as long as it may wait."""
    machine = await yard.machine()
    waiting = await held_back(yard, machine, verb)
    await revoke(yard, machine)
    async with asyncio.timeout(5):
        with pytest.raises(TokenInvalid):
            await waiting


async def test_nothing_is_offered_to_a_runner_whose_token_is_revoked(yard: Yard) -> None:
    """Not even by a server that has not heard of it yet, and what was offered before is not shown again."""
    machine = await yard.machine(slots=2)
    [shown] = await yard.enqueue()
    crossed = await machine.one()
    token_id = await yard.db.value("select token_id from holdfast.workers")
    runner = await yard.desk.hearing.hear(RunnerCaller(machine.worker_id, token_id))
    await revoke(yard, machine)
    [job_id] = await yard.enqueue()
    assert await yard.desk.dispatcher.offers(runner, 1, 0.0) == []
    again = offers.show_offers_again([fence(crossed)], [token_hash("a further one")])
    assert await yard.db.database.run(again) == []
    assert (await yard.live(shown), await yard.live(job_id)) == (("claimed", 1, 0), ("available", 0, 0))


async def test_tokens_of_assignments_are_as_good_as_their_runners(yard: Yard) -> None:
    """What a runner has given its programs is refused with it, until it registers again."""
    machine = await yard.machine()
    await yard.enqueue()
    offer = await machine.one()
    await machine.start(offer)
    program = machine.by(offer.token)
    await program.progress(offer)
    await revoke(yard, machine)
    with pytest.raises(TokenInvalid):
        await program.progress(offer)
    await yard.machine()
    assert (await program.progress(offer)).state == "running"
