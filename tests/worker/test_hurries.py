"""Claims in a hurry: they pass over what others have locked, and miss nothing for long."""

import asyncio
from typing import Any

import pytest

from holdfast.model.job import NewJob
from holdfast.store import attempts, jobs
from holdfast.store.attempts import Demand
from holdfast.worker import claims
from holdfast.worker.bundles import Bundles
from holdfast.worker.claims import Claims
from tests.store.scene import KIND, Scene

LOCK = "select from holdfast.live_jobs where job_id = any ($1::bigint[]) for update"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each claim from now on was: in a hurry or not; no look behind is due by the clock."""
    told, claim = list[bool](), attempts.claim_jobs

    def noted(demand: Demand) -> Any:
        told.append(demand.hurried)
        return claim(demand)

    monkeypatch.setattr(claims, "LOOK_BEHIND", 600.0)
    monkeypatch.setattr(attempts, "claim_jobs", noted)
    return told


async def taken(one: Claims, worker: int, limit: int) -> list[int]:
    """Claim; answers the ids."""
    demand = Demand(worker_id=worker, queues=("default",), kinds=(KIND,), limit=limit, free=0)
    return [job.id for job in await one.plain(demand)]


async def test_a_claim_that_finds_nothing_in_a_hurry_looks_again_at_once(
    scene: Scene, hurried: list[bool]
) -> None:
    """Nothing found means that nothing is there: whoever is told so goes to sleep."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    first, second = await scene.enqueue(2)
    assert await taken(one, worker, 1) == [first]
    await scene.db.fetch(LOCK, [second])
    assert await taken(one, worker, 1) == [second]
    assert hurried == [False, True, False]


async def test_a_line_full_of_what_was_let_go_is_not_walked_over_again_and_again(
    scene: Scene, hurried: list[bool]
) -> None:
    """Once a claim in a hurry missed what could be had, none hurries before the line has been empty."""
    worker, one = await scene.worker(), Claims(scene.db.database, Bundles(scene.db.database))
    made = await scene.enqueue(8)
    assert await taken(one, worker, 2) == made[:2]
    await scene.db.fetch(LOCK, made[2:])
    claimed = [await taken(one, worker, 2) for _ in range(4)]
    assert claimed == [made[2:4], made[4:6], made[6:], []]
    assert hurried == [False, True, False, False, False, False]
    made = await scene.enqueue(4)
    assert [await taken(one, worker, 2) for _ in range(2)] == [made[:2], made[2:]]
    assert hurried[6:] == [False, True]


async def test_a_busy_loop_does_not_put_off_the_looks_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they cost the server says how often to look, and not when this process comes to hear of it."""
    worker, one, run = (
        await scene.worker(),
        Claims(scene.db.database, Bundles(scene.db.database)),
        scene.db.database.run,
    )

    async def heard_late(*asked: Any) -> Any:
        found = await run(*asked)
        await asyncio.sleep(0.2)
        return found

    async with scene.db.database.transaction() as connection:
        [late] = await scene.run(jobs.enqueue_jobs([NewJob(kind=KIND, args="{}")]), connection)
        await scene.enqueue(40)
        monkeypatch.setattr(scene.db.database, "run", heard_late)
        for _ in range(4):
            await taken(one, worker, 1)
    claims_made = 0
    while await taken(one, worker, 1) != [late.id]:
        claims_made += 1
    assert claims_made < 8
