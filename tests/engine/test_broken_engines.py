"""An implementation that breaks a promise of the interfaces does not pass their tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from holdfast.engine import Claim, EngineStore, SavedState, Signal
from holdfast.testing import EngineConformance, ThrowawayDatabase
from tests.engine.test_conformance import PostgresGround

# Of all engines, so that none happens on what another one has noted.
PLACES = count(1000)


class BrokenGround(PostgresGround):
    """Engines on PostgreSQL to each of which the same has been done."""

    def __init__(self, db: ThrowawayDatabase, stack: AsyncExitStack, damage: Callable[[Any], None]) -> None:
        super().__init__(db, stack)
        self._damage = damage

    async def worker(self, *, version: int = 1) -> EngineStore:
        """Another worker, broken."""
        store = await super().worker(version=version)
        self._damage(store)
        return store


def takes_more_than_asked(store: Any) -> None:
    """It claims all that it can get."""
    claim = store.queue.claim
    store.queue.claim = lambda limit=1: claim(limit + 100)


def knows_no_unique_keys(store: Any) -> None:
    """It does not tell of a key that is taken."""
    enqueue = store.queue.enqueue
    store.queue.enqueue = lambda kind, spec, **options: enqueue(
        kind, spec, **(options | {"unique_policy": "keep"})
    )


def has_one_checkpoint(store: Any) -> None:
    """Whatever was saved last is the state of every run."""
    save, load, last = store.checkpoints.save, store.checkpoints.load, list[int]()

    async def keep(claim: Claim, state: Any) -> None:
        await save(claim, state)
        last.append(claim.run_id)

    async def find(run_id: int) -> SavedState | None:
        found: SavedState | None = await load(last[-1] if last else run_id)
        return found

    store.checkpoints.save, store.checkpoints.load = keep, find


def remembers_signals_itself(store: Any) -> None:
    """Which place has which signal dies with the process."""
    take, taken = store.signals.take, dict[tuple[int, str, int], Signal | None]()

    async def own(claim: Claim, name: str, *, place: int, branch: str = "main") -> Signal | None:
        key = claim.run_id, branch, place
        if taken.get(key) is None:
            taken[key] = await take(claim, name, place=next(PLACES), branch=branch)
        return taken[key]

    store.signals.take = own


def has_no_branches(store: Any) -> None:
    """A place has the same signal on every branch."""
    take = store.signals.take
    store.signals.take = lambda claim, name, *, place, **_branch: take(claim, name, place=place)


def reads_all_steps(store: Any) -> None:
    """It gives every page from the beginning."""
    read = store.progress.read
    store.progress.read = lambda run_id, **_page: read(run_id)


def reads_all_calls(store: Any) -> None:
    """It gives more lines than were asked for."""
    read = store.activities.read
    store.activities.read = lambda run_id, *, after=0, **_limit: read(run_id, after=after)


def sees_first_attempts_alone(store: Any) -> None:
    """What a later attempt reports is left out."""
    note = store.progress.report
    store.progress.report = lambda claim, report: note(claim, report) if claim.attempt == 1 else None


DAMAGES = {
    takes_more_than_asked: "test_the_best_goes_first_and_then_the_oldest",
    knows_no_unique_keys: "test_what_cannot_be_enqueued_is_refused",
    has_one_checkpoint: "test_each_run_has_a_checkpoint_of_its_own",
    remembers_signals_itself: "test_a_place_has_its_signal_for_good",
    has_no_branches: "test_a_place_has_its_signal_for_good",
    reads_all_steps: "test_reports_that_come_at_once_lose_nothing",
    reads_all_calls: "test_the_log_has_a_line_for_each_call",
    sees_first_attempts_alone: "test_a_newer_attempt_takes_over_what_is_not_done",
}


@pytest.fixture(params=DAMAGES, ids=lambda damage: damage.__name__)
async def broken(
    request: pytest.FixtureRequest, db: ThrowawayDatabase
) -> AsyncIterator[tuple[str, BrokenGround]]:
    """The name of a test, and a ground on which it has to fail."""
    async with AsyncExitStack() as stack:
        yield DAMAGES[request.param], BrokenGround(db, stack, request.param)


async def test_a_broken_promise_is_noticed(broken: tuple[str, BrokenGround]) -> None:
    """The test of that promise fails."""
    name, ground = broken
    with pytest.raises(AssertionError):
        await getattr(EngineConformance(), name)(ground)
