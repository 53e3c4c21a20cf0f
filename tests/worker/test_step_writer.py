"""The step writer on its own: what becomes of places that cannot be written."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.runtime.events import Events
from holdfast.store import steps
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.running import Held
from holdfast.worker.step_writer import MOST_IN_FLIGHT, StepWriter

NOTE = StepNote(branch="main", place=0, name="charge", kind=StepKind.STEP, state=StepState.COMPLETED)


async def test_a_stopped_step_writer_gives_up_what_the_database_does_not_take(db: ThrowawayDatabase) -> None:
    """What waits for a batch under way would be tried for ever, behind everybody's back."""
    held, probe = Held(), Probe()
    step_writer = StepWriter(Database(db.config), held, Events(probe))
    held.take([Fence(1, 1)])
    for _ in range(MOST_IN_FLIGHT + 1):
        step_writer.hand_in(Fence(1, 1), [NOTE])
    await probe.wait_for("steps.delayed")
    await step_writer.stop()
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast step writer"] == []


async def test_a_place_that_many_branches_bring_is_written_once(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand that begin at once bring all that came before them, each: that would be a million rows."""
    sent, save = list[int](), steps.save_steps

    def counted(notes: Sequence[tuple[Fence, StepNote]]) -> Any:
        sent.append(len(notes))
        return save(notes)

    monkeypatch.setattr(steps, "save_steps", counted)
    held = Held()
    step_writer = StepWriter(db.database, held, Events(Probe()))
    held.take([Fence(1, 1), Fence(2, 1)])
    ours = [replace(NOTE, branch=f"main/{n}") for n in range(4)]
    pages = [step_writer.hand_in(Fence(1, 1), [NOTE, one]) for one in ours]
    pages.append(step_writer.hand_in(Fence(2, 1), [NOTE]))
    await asyncio.gather(*pages, return_exceptions=True)
    assert sent == [2, 2, 4]
    await step_writer.stop()
