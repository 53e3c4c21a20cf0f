"""Falling asleep and being woken, in every order: two sessions, and whoever comes second sees the first."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.model.audit import Mandate
from holdfast.model.job import ClaimedJob, NewJob
from holdfast.model.outcome import Suspend
from holdfast.store import children, interventions, leader, runs, signals
from holdfast.store.children import Place
from holdfast.store.database import Connection
from holdfast.store.runs import Suspended
from tests.store.scene import KIND, Scene, fence

LISTEN = Suspend("a signal", signals=("go",))
OPERATOR = Mandate("ada", None)


class Session:
    """A session with a transaction that the test ends."""

    def __init__(self, scene: Scene, connection: Connection) -> None:
        self.scene, self.connection = scene, connection
        self._transaction = connection.transaction()

    async def run(self, statement: Any) -> Any:
        """Run a statement in the transaction."""
        return await self.scene.run_on(self.connection, statement)

    async def commit(self) -> None:
        """End the transaction; its deferred triggers run now."""
        await self._transaction.commit()

    async def rollback(self) -> None:
        """Undo the transaction."""
        await self._transaction.rollback()

    async def begin(self) -> Session:
        """Begin the transaction."""
        await self._transaction.start()
        return self


async def session(scene: Scene) -> Session:
    """Begin a transaction in a session of its own."""
    return await Session(scene, await scene.session()).begin()


def sleep(job: ClaimedJob, decision: Suspend = LISTEN) -> Any:
    """What puts a run to sleep."""
    return runs.suspend_runs([Suspended(fence(job), decision)])


def send(job: ClaimedJob, name: str = "go") -> Any:
    """What sends a signal."""
    return signals.send_signal(job.id, name, "1", None)


async def state(scene: Scene, job_id: int) -> Any:
    """Where a run stands."""
    return (await scene.states())[job_id]


async def test_a_signal_before_the_sleep_keeps_the_run_awake(scene: Scene) -> None:
    """The run looks when it falls asleep, and is available at once."""
    job = await scene.one()
    await scene.run(send(job))
    assert await scene.run(sleep(job)) == [job.id]
    assert await state(scene, job.id) == "available"


async def test_a_signal_after_the_sleep_wakes_the_run(scene: Scene) -> None:
    """Only the name that it waits for does."""
    job = await scene.one()
    await scene.run(sleep(job))
    await scene.run(send(job, "other"))
    assert await state(scene, job.id) == "waiting"
    await scene.run(send(job))
    assert await state(scene, job.id) == "available"
    assert await scene.db.value("select count(*) from holdfast.suspensions") == 0


async def test_a_signal_sent_while_the_run_falls_asleep_waits_for_it(scene: Scene) -> None:
    """The sleep is not committed: the sender's commit waits for it, and then wakes the run."""
    job = await scene.one()
    sleeper, sender = await session(scene), await session(scene)
    await sleeper.run(sleep(job))
    await sender.run(send(job))
    committing = asyncio.create_task(sender.commit())
    await scene.blocked(sender.connection)
    await sleeper.commit()
    await committing
    assert await state(scene, job.id) == "available"


async def test_a_run_that_falls_asleep_while_a_signal_is_committed_waits_for_it(scene: Scene) -> None:
    """The sender has looked and holds the run's row: the run waits for its commit, and sees the signal."""
    job = await scene.one()
    sleeper, sender = await session(scene), await session(scene)
    await sender.run(send(job))
    await sender.connection.execute("set constraints all immediate")
    sleeping = asyncio.create_task(sleeper.run(sleep(job)))
    await scene.blocked(sleeper.connection)
    await sender.commit()
    assert await sleeping == [job.id]
    await sleeper.commit()
    assert await state(scene, job.id) == "available"


async def test_a_signal_in_a_long_transaction_holds_nobody_up(scene: Scene) -> None:
    """The run falls asleep meanwhile, and is woken by the commit."""
    job = await scene.one()
    sender = await session(scene)
    await sender.run(send(job))
    assert await scene.run(sleep(job)) == [job.id]
    assert await state(scene, job.id) == "waiting"
    await sender.commit()
    assert await state(scene, job.id) == "available"


async def test_what_was_rolled_back_wakes_nobody(scene: Scene) -> None:
    """Neither a signal that was never sent, nor one whose sender met a sleep that never was."""
    job = await scene.one()
    sender, sleeper = await session(scene), await session(scene)
    await sender.run(send(job))
    await scene.run(sleep(job))
    await sender.rollback()
    assert await state(scene, job.id) == "waiting"
    other = await scene.one()
    await sleeper.run(sleep(other))
    await sleeper.rollback()
    await scene.run(send(other))
    assert await state(scene, other.id) == "running"


async def test_a_run_sleeps_once_for_each_attempt(scene: Scene) -> None:
    """A stale attempt puts nobody to sleep, and the resumed one has a number of its own."""
    worker = await scene.worker()
    job = await scene.one(worker)
    await scene.run(sleep(job))
    assert await scene.run(sleep(job)) == []
    await scene.run(send(job))
    (again,) = await scene.claim(worker)
    assert (again.id, again.attempt, again.failures) == (job.id, 2, 0)
    assert await scene.run(sleep(job)) == []
    outcomes = await scene.db.fetch("select attempt, outcome, reason from holdfast.attempts")
    assert outcomes == [(1, "suspended", "a signal")]


async def family(scene: Scene, parent: ClaimedJob, count: int) -> tuple[int, list[ClaimedJob]]:
    """Start and claim children of a held run; answers their family too."""
    place = Place("main", 0, KIND, "children", "{}")
    made = await scene.run(
        children.start_children(fence(parent), place, [NewJob(kind=KIND, args="{}")] * count)
    )
    assert made is not None
    return made, await scene.claim(await scene.worker(), limit=count)


async def test_the_last_child_wakes_its_parent(scene: Scene) -> None:
    """Those before it do not, and where all have ended before, the parent does not sleep at all."""
    parent = await scene.one()
    made, (first, second) = await family(scene, parent, 2)
    await scene.run(sleep(parent, Suspend("children", families=(made,))))
    await scene.complete(first)
    assert await state(scene, parent.id) == "waiting"
    await scene.complete(second)
    assert await state(scene, parent.id) == "available"
    other = await scene.one()
    late, jobs = await family(scene, other, 1)
    await scene.complete(*jobs)
    await scene.run(sleep(other, Suspend("children", families=(late,))))
    assert await state(scene, other.id) == "available"


async def test_children_that_end_at_once_do_not_overlook_each_other(scene: Scene) -> None:
    """Neither sees the end of the other: one of them waits, and wakes the parent."""
    parent = await scene.one()
    made, (first, second) = await family(scene, parent, 2)
    await scene.run(sleep(parent, Suspend("children", families=(made,))))
    one, two = await session(scene), await session(scene)
    await scene.complete(first, connection=one.connection)
    ending = asyncio.create_task(scene.complete(second, connection=two.connection))
    await scene.blocked(two.connection)
    await one.commit()
    await ending
    await two.commit()
    assert await state(scene, parent.id) == "available"


async def test_a_child_that_ends_while_its_parent_falls_asleep_waits_for_it(scene: Scene) -> None:
    """The sleep is not committed: the child's end waits for it, and then wakes the parent."""
    parent = await scene.one()
    made, (child,) = await family(scene, parent, 1)
    sleeper, ender = await session(scene), await session(scene)
    await sleeper.run(sleep(parent, Suspend("children", families=(made,))))
    ending = asyncio.create_task(scene.complete(child, connection=ender.connection))
    await scene.blocked(ender.connection)
    await sleeper.commit()
    await ending
    await ender.commit()
    assert await state(scene, parent.id) == "available"


async def test_a_parent_that_falls_asleep_while_its_child_ends_waits_for_it(scene: Scene) -> None:
    """The end is not committed: the parent waits for it, and stays awake."""
    parent = await scene.one()
    made, (child,) = await family(scene, parent, 1)
    sleeper, ender = await session(scene), await session(scene)
    await scene.complete(child, connection=ender.connection)
    sleeping = asyncio.create_task(sleeper.run(sleep(parent, Suspend("children", families=(made,)))))
    await scene.blocked(sleeper.connection)
    await ender.commit()
    await sleeping
    await sleeper.commit()
    assert await state(scene, parent.id) == "available"


async def test_a_cancel_wakes_a_run_that_has_steps_and_ends_one_that_has_none(scene: Scene) -> None:
    """One that has done something makes up for it first."""
    plain, begun = await scene.one(), await scene.one()
    await scene.run(sleep(plain))
    await family(scene, begun, 1)
    await scene.run(sleep(begun))
    await scene.run(interventions.cancel_jobs([plain.id, begun.id], OPERATOR))
    assert await state(scene, plain.id) == "cancelled"
    assert await state(scene, begun.id) == "available"


async def test_a_cancel_that_comes_before_the_sleep_keeps_the_run_awake(scene: Scene) -> None:
    """Unless the run knows of it, and waits while it makes up for what it did."""
    worker = await scene.worker()
    job = await scene.one(worker)
    await scene.run(interventions.cancel_jobs([job.id], OPERATOR))
    await scene.run(sleep(job))
    assert await state(scene, job.id) == "available"
    (again,) = await scene.claim(worker)
    await scene.run(sleep(again, Suspend("a rest", due=time.monotonic() + 60, stopping=True)))
    assert await state(scene, job.id) == "waiting"


@pytest.mark.parametrize("paused_first", [True, False])
async def test_a_paused_run_is_passed_over_by_whatever_wakes(scene: Scene, *, paused_first: bool) -> None:
    """The resume looks again, whichever of pause and sleep came first."""
    job = await scene.one()
    pause = runs.pause_runs([job.id], OPERATOR)
    if paused_first:
        await scene.run(pause)
    await scene.run(
        sleep(job, Suspend("a rest", signals=("go",), due=time.monotonic() + (0 if paused_first else 3600)))
    )
    if not paused_first:
        await scene.run(pause)
    await scene.run(send(job))
    assert (await scene.run(leader.stage_jobs(await scene.lead(), 10))).count == 0
    assert await state(scene, job.id) == "waiting"
    assert await scene.run(runs.resume_runs([job.id], OPERATOR)) == [job.id]
    assert await state(scene, job.id) == "available"


@pytest.mark.parametrize("held", [True, False])
async def test_a_pause_after_a_cancel_holds(scene: Scene, *, held: bool) -> None:
    """A run that does not know of its cancel yet learns of it at the resume, whatever comes in between."""
    job = await scene.one()
    await family(scene, job, 1)
    if not held:
        await scene.run(sleep(job))
    await scene.run(interventions.cancel_jobs([job.id], OPERATOR))
    await scene.run(runs.pause_runs([job.id], OPERATOR))
    if held:
        await scene.run(sleep(job))
    await scene.run(send(job))
    assert await state(scene, job.id) == "waiting"
    await scene.run(runs.resume_runs([job.id], OPERATOR))
    assert await state(scene, job.id) == "available"


async def test_a_cancel_after_a_pause_is_not_held_up_by_who_parks_for_the_pause(scene: Scene) -> None:
    """A worker that has heard only of the pause puts the run to sleep, and it goes on at once."""
    job = await scene.one()
    await scene.run(runs.pause_runs([job.id], OPERATOR))
    await scene.run(interventions.cancel_jobs([job.id], OPERATOR))
    await scene.run(sleep(job, Suspend("a pause", paused=True)))
    assert await state(scene, job.id) == "available"


async def test_a_pause_reaches_children_that_are_started_while_it_waits(scene: Scene) -> None:
    """Neither they nor theirs go on without the run that is paused."""
    parent = await scene.one()
    starter, pauser = await session(scene), await session(scene)
    follows = Place("main", 0, KIND, "children", '{"policy": "cancel", "runs": true}')
    start = children.start_children(fence(parent), follows, [NewJob(kind=KIND, args="{}")])
    child = await starter.run(start)
    pausing = asyncio.create_task(pauser.run(runs.pause_runs([parent.id], OPERATOR)))
    await scene.blocked(pauser.connection)
    await starter.commit()
    assert await pausing == [parent.id, child]
    await pauser.commit()
    assert await state(scene, child) == "waiting"


async def test_a_run_that_is_paused_while_it_asks_for_children_starts_none(scene: Scene) -> None:
    """The pause has looked for them: it starts them after the resume."""
    parent = await scene.one()
    starter, pauser = await session(scene), await session(scene)
    follows = Place("main", 0, KIND, "children", '{"policy": "cancel", "runs": true}')
    start = children.start_children(fence(parent), follows, [NewJob(kind=KIND, args="{}")])
    assert await pauser.run(runs.pause_runs([parent.id], OPERATOR)) == [parent.id]
    starting = asyncio.create_task(starter.run(start))
    await scene.blocked(starter.connection)
    await pauser.commit()
    assert await starting == 0
    await starter.commit()
    assert await scene.run(start) == 0
    await scene.run(runs.resume_runs([parent.id], OPERATOR))
    assert await scene.run(start) != 0


async def test_a_resumed_run_goes_on_waiting_for_what_has_not_come(scene: Scene) -> None:
    """It is due again at the same moment as before."""
    job = await scene.one()
    await scene.run(sleep(job, Suspend("a rest", due=time.monotonic() + 3600)))
    due = "select run_at from holdfast.live_jobs"
    before = await scene.db.value(due)
    await scene.run(runs.pause_runs([job.id], OPERATOR))
    await scene.run(runs.resume_runs([job.id], OPERATOR))
    assert await state(scene, job.id) == "waiting"
    assert await scene.db.value(due) == before


async def test_runs_whose_time_has_come_are_staged_with_other_jobs(scene: Scene) -> None:
    """The leader sleeps until the next one of either sort."""
    job = await scene.one()
    await scene.run(sleep(job, Suspend("a rest", due=time.monotonic() + 3600)))
    term = await scene.lead()
    staged = await scene.run(leader.stage_jobs(term, 10))
    assert staged.count == 0
    assert staged.next_in == pytest.approx(3600, abs=5)
    await scene.db.fetch("update holdfast.live_jobs set run_at = holdfast.now()")
    assert (await scene.run(leader.stage_jobs(term, 10))).count == 1
    assert await state(scene, job.id) == "available"
    assert await scene.db.value("select count(*) from holdfast.suspensions") == 0
