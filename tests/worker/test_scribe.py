"""The scribe on its own: what becomes of places that cannot be written."""

import asyncio

from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.runtime.events import Events
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.running import Held
from holdfast.worker.scribe import MOST_IN_FLIGHT, Scribe

NOTE = StepNote(branch="main", place=0, name="charge", kind=StepKind.STEP, state=StepState.COMPLETED)


async def test_a_stopped_scribe_gives_up_what_the_database_does_not_take(db: ThrowawayDatabase) -> None:
    """What waits for a batch under way would be tried for ever, behind everybody's back."""
    held, probe = Held(), Probe()
    scribe = Scribe(Database(db.config), held, Events(probe))
    held.take([Fence(1, 1)])
    for _ in range(MOST_IN_FLIGHT + 1):
        scribe.hand_in(Fence(1, 1), [NOTE])
    await probe.wait_for("steps.delayed")
    await scribe.stop()
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast scribe"] == []
