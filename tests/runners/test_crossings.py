"""Requests that meet: of two runners, of two attempts, at two servers, in the wrong order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.errors import AssignmentStale, RunnerSuperseded
from holdfast.model.runner import Runner
from holdfast.model.worker import WorkerState
from holdfast.runners.dispatcher import Offer
from holdfast.runners.messages import AssignmentTold
from holdfast.store import offers
from tests.runners.conftest import Machine, OpenYard, Yard, listed


async def begun(yard: Yard, machine: Machine, **options: Any) -> AssignmentTold:
    """A command that runs on a machine."""
    await yard.enqueue(**options)
    offer = await machine.one()
    await machine.start(offer)
    return offer


async def test_the_report_of_a_stranger_that_comes_at_once_takes_nothing(yard: Yard) -> None:
    """It flies with the runner's own one, and before it; each gets the answer that is its own."""
    offer = await begun(yard, machine := await yard.machine())
    stranger = await yard.machine("build-2")
    for one, held in ((stranger, ()), (machine, (listed(offer),))):
        await one.sync(*held)
    told = await asyncio.gather(
        *(one.finish(offer) for one in (stranger, machine, stranger)), return_exceptions=True
    )
    assert [isinstance(one, AssignmentStale) for one in told] == [True, False, True]
    assert await yard.state(offer.job) == "completed"


async def test_words_of_a_stranger_that_come_at_once_are_told_apart(yard: Yard) -> None:
    """Neither does the stranger speak for the runner, nor is the runner told that it lost its work."""
    offer = await begun(yard, machine := await yard.machine())
    stranger = await yard.machine("build-2")
    for one, held in ((stranger, ()), (machine, (listed(offer),))):
        await one.sync(*held)
    told = await asyncio.gather(
        *(one.progress(offer, note="a word") for one in (stranger, machine, stranger, machine)),
        return_exceptions=True,
    )
    assert [isinstance(one, AssignmentStale) for one in told] == [True, False, True, False]


async def test_reports_of_two_attempts_at_once_are_told_apart(yard: Yard) -> None:
    """The late one of the former attempt ends nothing, though the job is held again."""
    old = await begun(yard, machine := await yard.machine())
    await machine.sync()
    new = await machine.one()
    await machine.start(new)
    told = await asyncio.gather(machine.finish(old), machine.finish(new), return_exceptions=True)
    assert [isinstance(one, AssignmentStale) for one in told] == [True, False]
    outcomes = "select outcome from holdfast.assignments where job_id = $1 order by attempt"
    assert [row[0] for row in await yard.db.fetch(outcomes, old.job)] == ["lost", "completed"]


async def test_the_same_report_at_two_servers_ends_it_once(yard: Yard, open_yard: OpenYard) -> None:
    """The second server waits for the first one's lock, and then sees what it did."""
    machine = await yard.machine()
    twin = machine.at(await open_yard())
    for number in range(8):
        offer = await begun(yard, machine)
        told = await asyncio.gather(*(one.finish(offer, number=1000 + number) for one in (machine, twin)))
        assert sorted(one.repeated for one in told) == [False, True]


async def test_a_sync_that_comes_twice_takes_nothing_that_its_own_token_has_begun(yard: Yard) -> None:
    """The offer was its first answer; the program has begun by its own token since."""
    machine = await yard.machine()
    await yard.enqueue()
    twice = machine.count()
    [hold] = (await machine.sync(number=twice, free=1)).hold
    assert hold.assignment is not None
    await machine.by(hold.assignment.token).start(hold.assignment)
    await machine.sync(number=twice, free=1)
    assert await yard.live(hold.job) == ("running", 1, 0)


@pytest.mark.parametrize("servers", [1, 2])
async def test_a_new_registration_tells_who_waits_under_the_name(
    yard: Yard, open_yard: OpenYard, servers: int
) -> None:
    """Else what the new one gives back could be offered to the older one, and told to the new one late."""
    older = (await yard.machine()).at(yard if servers == 1 else await open_yard())
    waiting = asyncio.create_task(older.sync(free=1, wait=30))
    await older.yard.desk_hears(older)
    await yard.machine()
    async with asyncio.timeout(10):
        with pytest.raises(RunnerSuperseded):
            await waiting


async def test_a_superseded_registration_is_given_nothing_however_late_it_asks(yard: Yard) -> None:
    """It was heard just before its successor registered, and begins to wait just after that."""
    [older, newer] = [await yard.machine() for _ in range(2)]
    late = Runner(
        id=older.worker_id,
        name="build-1",
        term=1,
        state=WorkerState.ONLINE,
        labels=frozenset(),
        kinds=frozenset(["command"]),
        queues=("default",),
        slots=1,
    )
    dispatcher = yard.desk.dispatcher
    await yard.enqueue()
    assert await dispatcher.offers(late, 1, 0.2) == []
    await newer.finish(await newer.one())
    waiting = asyncio.create_task(newer.sync(free=1, wait=30))
    await yard.desk_hears(newer)
    assert await dispatcher.offers(late, 1, 30) == []
    [job_id] = await yard.enqueue()
    assert [hold.job for hold in (await waiting).hold] == [job_id]


@pytest.mark.usefixtures("only_woken")
async def test_a_cancel_that_comes_just_before_a_sync_waits_is_told_at_once(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync has looked at what its runner holds already, and nobody waits yet who could be woken."""
    offer = await begun(yard, machine := await yard.machine())
    dispatcher, heard = yard.desk.dispatcher, asyncio.Event()
    ring, wait = dispatcher.ring, dispatcher.offers

    def noted(worker_id: int) -> None:
        ring(worker_id)
        heard.set()

    async def after_a_cancel(*asked: Any, **options: Any) -> list[Offer]:
        await yard.client.cancel(offer.job)
        await heard.wait()
        return await wait(*asked, **options)

    monkeypatch.setattr(dispatcher, "ring", noted)
    monkeypatch.setattr(dispatcher, "offers", after_a_cancel)
    async with asyncio.timeout(10):
        [hold] = (await machine.sync(listed(offer), wait=30)).hold
    assert hold.cancel is not None


async def test_who_waits_to_give_work_sees_what_was_given_meanwhile(yard: Yard, eventually: Any) -> None:
    """Another server held the runner's row and filled its slot."""
    machine = await yard.machine()
    await machine.sync()
    job_id, _ = await yard.enqueue(2)
    database, worker_id = yard.db.database, machine.worker_id
    async with database.transaction() as first:
        await database.run(offers.lock_runners([worker_id]), first)
        await database.run(offers.offer_jobs([(job_id, worker_id)], [b"0" * 32]), first)
        claim = asyncio.create_task(machine.claim())
        blocked = (
            "select count(*) from pg_stat_activity "
            "where wait_event_type = 'Lock' and query like '%for no key update%'"
        )
        await eventually(lambda: yard.db.value(blocked))
    assert await claim == []
    held = "select count(*) from holdfast.live_jobs where worker_id is not null"
    assert await yard.db.value(held) == 1
