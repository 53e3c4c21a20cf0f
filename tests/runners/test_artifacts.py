"""Files that attempts leave: how many, and how much of them."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ArtifactsTooMany, PayloadTooLarge
from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.files import Files
from holdfast.runners.messages import AssignmentTold
from tests.runners.conftest import Machine, Yard, fence

KEPT = "select attempt, name, size from holdfast.artifacts order by 1, 2"
LIMITS = ArtifactLimits(count=2, file_bytes=8, total_bytes=10)


@pytest.fixture
async def machine(yard: Yard) -> Machine:
    """A runner that has taken a command."""
    return await yard.machine()


@pytest.fixture
async def offer(yard: Yard, machine: Machine) -> AssignmentTold:
    """What it has taken."""
    await yard.enqueue()
    return await machine.one()


@pytest.fixture
def files(yard: Yard) -> Files:
    """What keeps files, with bounds that are soon met."""
    return Files(yard.db.database, LIMITS)


async def test_an_attempt_leaves_so_many_files(
    yard: Yard, machine: Machine, offer: AssignmentTold, files: Files
) -> None:
    """One more is refused; one that is there already is still there when it is sent again."""
    worker_id = machine.worker_id
    for name in ("a", "b"):
        assert await files.keep(fence(offer), worker_id, name, b"x")
    with pytest.raises(ArtifactsTooMany, match="2 files and 10 bytes"):
        await files.keep(fence(offer), worker_id, "c", b"x")
    assert not await files.keep(fence(offer), worker_id, "a", b"x")
    assert await yard.db.fetch(KEPT) == [(1, "a", 1), (1, "b", 1)]


async def test_an_attempt_leaves_so_many_bytes(
    yard: Yard, machine: Machine, offer: AssignmentTold, files: Files
) -> None:
    """In one file, and in all together; a smaller one may still fit."""
    worker_id = machine.worker_id
    with pytest.raises(PayloadTooLarge):
        await files.keep(fence(offer), worker_id, "a", b"x" * 9)
    assert await files.keep(fence(offer), worker_id, "a", b"x" * 8)
    with pytest.raises(ArtifactsTooMany):
        await files.keep(fence(offer), worker_id, "b", b"x" * 3)
    assert await files.keep(fence(offer), worker_id, "b", b"x" * 2)
    assert await yard.db.fetch(KEPT) == [(1, "a", 8), (1, "b", 2)]


async def test_files_that_come_at_once_share_the_bound_exactly(
    yard: Yard, machine: Machine, offer: AssignmentTold, files: Files
) -> None:
    """Each is counted before the next one is looked at."""
    sent = [files.keep(fence(offer), machine.worker_id, f"file {n}", b"x") for n in range(8)]
    told = await asyncio.gather(*sent, return_exceptions=True)
    assert sum(one is True for one in told) == 2
    assert sum(isinstance(one, ArtifactsTooMany) for one in told) == 6
    assert await yard.db.value("select count(*) from holdfast.artifacts") == 2


async def test_the_next_attempt_has_a_bound_of_its_own(
    yard: Yard, machine: Machine, offer: AssignmentTold, files: Files
) -> None:
    """What an attempt left that came to nothing takes no room from the next one."""
    for name in ("a", "b"):
        await files.keep(fence(offer), machine.worker_id, name, b"x")
    await machine.finish(offer, "released")
    again = await machine.one()
    assert await files.keep(fence(again), machine.worker_id, "a", b"x")
    assert await yard.db.fetch(KEPT) == [(1, "a", 1), (1, "b", 1), (2, "a", 1)]
