"""One leader at a time, and never for long none."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import holdfast
from holdfast.maintenance.deliverer import Deliverer
from holdfast.maintenance.duty import FIRST_MOMENT
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.overseer import Overseer
from holdfast.maintenance.partitioner import Partitioner
from holdfast.maintenance.rescuer import Rescuer
from holdfast.maintenance.scheduler import Scheduler
from holdfast.maintenance.stager import Stager
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import doctor, leader
from holdfast.store.database import Database
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.store.scene import Scene

TTL = 1.0


def candidate(db: ThrowawayDatabase, probe: Probe, worker_id: int | None = None) -> Leadership:
    """Somebody who stands for leader."""
    return Leadership(db.database, TTL, lambda: worker_id, Events(probe))


async def leads(probe: Probe, times: int = 1) -> int:
    """Wait until somebody has begun to lead for the n-th time; answers the term."""
    found = await probe.wait_for("leader.changed", lambda fields: fields["leads"], times=times)
    return int(found["term"])


async def test_the_row_says_who_leads(db: ThrowawayDatabase, probe: Probe) -> None:
    """Holder, worker and term of the leader can be read by everybody."""
    one = candidate(db, probe, worker_id=42)
    await one.turn()
    assert await db.fetch("select holder, worker_id, term from holdfast.leader") == [(one.holder, 42, 1)]


async def test_a_new_leader_is_left_its_first_moment_by_what_can_wait(scene: Scene, duty: Any) -> None:
    """It has often just started, and what has to happen at once, its jobs before all, needs connections."""
    rests = {}
    for kind in (Stager, Rescuer, Scheduler, Overseer, Partitioner, Deliverer):
        one = duty(kind)
        one.leadership.term = await scene.lead()
        rests[kind] = await one.turn() == FIRST_MOMENT
        assert await one.turn() != FIRST_MOMENT
    assert [kind for kind, rest in rests.items() if rest] == [Overseer, Partitioner, Deliverer]


async def test_only_one_of_two_leads(db: ThrowawayDatabase, probe: Probe) -> None:
    """Whoever comes second is told no, and the leader keeps its term by renewing."""
    first, second = candidate(db, probe), candidate(db, probe)
    for _ in range(3):
        await first.turn()
        await second.turn()
    assert (first.term, second.term) == (1, None)


async def test_two_leaderships_of_one_process_have_names_of_their_own(
    db: ThrowawayDatabase, probe: Probe
) -> None:
    """Names that are equal would make two leaders of one term."""
    assert candidate(db, probe).holder != candidate(db, probe).holder


async def test_a_leader_that_stops_renewing_is_followed_in_a_new_term(
    db: ThrowawayDatabase, probe: Probe
) -> None:
    """A dead leader's duty runs out, and another has it as soon as it has."""
    one, took = candidate(db, probe), list[float]()
    await one.start()
    assert await leads(probe) == 1
    try:
        # A full machine may hold up one or two of them.
        while len(took) < 3 and min(took, default=TTL + 1.0) >= TTL + 1.0:
            leader_of_before, one = one, candidate(db, probe)
            await one.start()
            # As a killed process does it: no word to the database.
            await Service.stop(leader_of_before)
            died = time.monotonic()
            term = len(took) + 2
            assert await leads(probe, times=term) == term
            took.append(time.monotonic() - died)
            assert one.term == term
    finally:
        await one.stop()
    assert min(took) < TTL + 1.0


async def test_a_leader_that_died_before_the_clock_was_set_back_is_followed(
    db: ThrowawayDatabase, probe: Probe, clock: Clock
) -> None:
    """Its row lies in the future, and the doctor says so; nobody waits until then."""
    start = await clock.now()
    first, second = candidate(db, probe), candidate(db, probe)
    await clock.set(start + timedelta(hours=1))
    await first.turn()
    await clock.set(start)
    assert (await db.database.run(doctor.leader_health())).ahead == 3600.0
    await second.turn()
    assert second.term == 2
    await first.turn()
    assert first.term is None
    assert (await db.database.run(doctor.leader_health())).ahead is None


async def test_a_leader_that_resigns_is_followed_at_once(maintain: Any, probe: Probe) -> None:
    """The successor is told, so it does not wait for the duty to run out."""
    first = await maintain(leader_ttl=600)
    await leads(probe)
    await maintain(leader_ttl=600)
    await probe.wait_for("listen.connected", times=2)
    await first.stop()
    async with asyncio.timeout(5):
        assert await leads(probe, times=2) == 2


async def test_a_leader_without_a_database_does_not_believe_in_itself(
    db: ThrowawayDatabase, probe: Probe
) -> None:
    """Where the renewal fails nobody knows whether we lead, so we do not; stopping goes well all the same."""
    database = Database(db.config)
    await database.open()
    one = Leadership(database, TTL, lambda: None, Events(probe))
    await one.start()
    await leads(probe)
    await database.close()
    one.wake()
    await probe.wait_for("service.failed")
    assert one.term is None
    await one.stop()


async def test_a_resignation_that_fails_is_told_and_the_stop_goes_on(
    db: ThrowawayDatabase, probe: Probe
) -> None:
    """Resigning is a courtesy that must not stand in the way of a stop."""
    database = Database(db.config)
    await database.open()
    one = Leadership(database, TTL, lambda: None, Events(probe))
    await one.turn()
    await database.close()
    await one.stop()
    (told,) = probe.seen("leader.not_resigned")
    assert isinstance(told["error"], holdfast.DatabaseUnavailable)


async def test_a_leader_that_was_followed_cannot_resign_for_its_follower(scene: Scene) -> None:
    """A resignation names its term: a late one changes nothing."""
    first = await scene.run(leader.lead("first", None, 600.0))
    assert first is not None
    await scene.db.fetch("update holdfast.leader set expires_at = '-infinity'")
    second = await scene.run(leader.lead("second", None, 600.0))
    assert not await scene.run(leader.resign("first", first))
    assert await scene.db.value("select term from holdfast.leader where expires_at > now()") == second
