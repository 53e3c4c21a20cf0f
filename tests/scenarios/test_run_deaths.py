"""A worker that is killed at any statement of a run: the run ends as if nothing had happened."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.scenarios.doom import Death
from tests.scenarios.forker import forking
from tests.scenarios.lives import Life, World, world

WORLDS = 10
# How often a death is tried again that did not come.
TRIES = 10


@pytest.mark.timeout(600)
async def test_a_run_survives_the_death_of_its_worker_at_every_statement(dsn: str, tmp_path: Path) -> None:
    """SIGKILL before and after each statement, one life for each: the same result, no step done twice."""
    async with AsyncExitStack() as stack:
        forker = await stack.enter_async_context(forking())
        worlds = [await stack.enter_async_context(world(dsn, forker, tmp_path)) for _ in range(WORLDS)]
        calm = await asyncio.gather(*(one.begin() for one in worlds))
        assert [life.problems for life in calm if life.problems] == []
        places = set.intersection(*(set(life.places) for life in calm))
        deaths = [Death(place, after) for place in places for after in (False, True)]
        lives = await _died(worlds, deaths)
    assert {str(death): life.problems for death, life in lives.items() if life.problems} == {}
    missed = [death for death, life in lives.items() if not life.died and death.place.certain]
    assert missed == []
    assert len(lives) > 100, "the statements must be seen, or this shows nothing"


async def _died(worlds: list[World], deaths: list[Death]) -> dict[Death, Life]:
    """Die all deaths, in whichever world is free."""
    lives: dict[Death, Life] = {}

    async def use(one: World) -> None:
        while deaths:
            death = deaths.pop()
            for _ in range(TRIES):
                try:
                    lives[death] = await one.live(death)
                except* TimeoutError:
                    lives[death] = Life(True, [], ["the run did not come to its end"])
                if lives[death].died or lives[death].problems or not death.place.certain:
                    break

    await asyncio.gather(*map(use, worlds))
    return lives
