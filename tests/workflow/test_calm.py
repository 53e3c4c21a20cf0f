"""A run that waits for hundreds of children looks at their ends together, and not at each of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Suspend
from holdfast.store import leader, runs
from holdfast.testing import Clock
from tests.store.scene import Scene
from tests.workflow.test_races import OPERATOR, family, send, sleep, state

MANY = 150
CALM = 0.15


async def parent_of(scene: Scene, count: int) -> tuple[ClaimedJob, list[ClaimedJob], Suspend]:
    """A held run with children that it waits for one by one, and how it sleeps; the clock stands still."""
    await Clock(scene.db).advance(0)
    parent = await scene.one()
    made, jobs = await family(scene, parent, count)
    await scene.db.fetch("update holdfast.live_jobs set family_id = job_id where family_id = $1", made)
    families = tuple(job.id for job in jobs)
    return parent, jobs, Suspend("children", signals=("go",), families=families)


async def stage(scene: Scene) -> tuple[int, Any]:
    """Do the leader's duty; answers how many jobs were staged, and in how many seconds it is due again."""
    staged = await scene.run(leader.stage_jobs(await scene.lead(), 10))
    return staged.count, staged.next_in


async def test_many_ends_wake_their_run_once(scene: Scene) -> None:
    """The first one only says when the run is to look; those that follow are met by that look."""
    parent, jobs, waits = await parent_of(scene, MANY)
    await scene.run(sleep(parent, waits))
    assert await stage(scene) == (0, None)
    for job in jobs[:3]:
        await scene.complete(job)
        assert await state(scene, parent.id) == "waiting"
        assert await stage(scene) == (0, pytest.approx(CALM))
    await Clock(scene.db).advance(CALM)
    assert await stage(scene) == (1, None)
    assert await state(scene, parent.id) == "available"
    assert await scene.db.value("select count(*) from holdfast.suspensions") == 0


async def test_an_end_that_comes_later_wakes_at_once(scene: Scene) -> None:
    """Where none came for a while, nothing is gained by waiting for more of them."""
    parent, jobs, waits = await parent_of(scene, MANY)
    await scene.run(sleep(parent, waits))
    await Clock(scene.db).advance(CALM)
    await scene.complete(jobs[0])
    assert await state(scene, parent.id) == "available"


async def test_up_to_a_hundred_are_looked_at_at_once(scene: Scene) -> None:
    """So few branches are replayed in no time."""
    parent, jobs, waits = await parent_of(scene, 100)
    await scene.run(sleep(parent, waits))
    await scene.complete(jobs[0])
    assert await state(scene, parent.id) == "available"


async def test_a_signal_does_not_wait_for_ends(scene: Scene) -> None:
    """Only children come by the hundred."""
    parent, jobs, waits = await parent_of(scene, MANY)
    await scene.run(sleep(parent, waits))
    await scene.complete(jobs[0])
    await scene.run(send(parent))
    assert await state(scene, parent.id) == "available"


async def test_an_end_before_the_sleep_is_not_overlooked(scene: Scene) -> None:
    """Nor one that comes in while the run falls asleep: its commit waits for the run."""
    parent, jobs, waits = await parent_of(scene, MANY)
    await scene.complete(jobs[0])
    await scene.run(sleep(parent, waits))
    assert await stage(scene) == (0, pytest.approx(CALM))
    other, jobs, waits = await parent_of(scene, MANY)
    sleeper = await scene.session()
    async with sleeper.transaction():
        await scene.run_on(sleeper, sleep(other, waits))
        ender = await scene.session()
        ending = asyncio.create_task(scene.complete(jobs[0], connection=ender))
        await scene.blocked(ender)
    await ending
    await Clock(scene.db).advance(CALM)
    assert await stage(scene) == (2, None)


async def test_an_end_is_not_forgotten_by_a_pause(scene: Scene) -> None:
    """The resume looks again, and leaves the run to its calm."""
    parent, jobs, waits = await parent_of(scene, MANY)
    await scene.run(sleep(parent, waits))
    await scene.run(runs.pause_runs([parent.id], OPERATOR))
    await scene.complete(jobs[0])
    assert await stage(scene) == (0, None)
    await scene.run(runs.resume_runs([parent.id], OPERATOR))
    assert await stage(scene) == (0, pytest.approx(CALM))
