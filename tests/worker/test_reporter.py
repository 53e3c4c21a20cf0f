"""The reporter on its own: what becomes of decisions that cannot be written."""

import asyncio

from holdfast.rules.outcome import released
from holdfast.runtime.events import Events
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held


async def test_a_stopped_reporter_gives_up_what_the_database_does_not_take(db: ThrowawayDatabase) -> None:
    """A decision that was put back by the stop would be tried again for ever, behind everybody's back."""
    held, probe = Held(), Probe()
    reporter = Reporter(Database(db.config), held, Events(probe))
    held.take([Fence(1, 1)])
    reporter.put_back([Fence(1, 1)], released("the worker is stopping"))
    await probe.wait_for("report.delayed")
    await reporter.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast report"] == []
