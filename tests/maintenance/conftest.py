"""The leader's duties one at a time, under a clock that tests set, or all together as a process runs them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest

from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.maintenance import Maintenance
from holdfast.runtime.events import Events
from holdfast.store.listen import Notifications
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.store.scene import drop_partitions

D = TypeVar("D", bound=Duty)


@pytest.fixture
async def clock(db: ThrowawayDatabase) -> Clock:
    """The clock of the test's schema, which has no partitions of the real today yet."""
    await drop_partitions(db)
    return Clock(db)


@pytest.fixture
def duty(db: ThrowawayDatabase, probe: Probe) -> Callable[..., Any]:
    """Makes a duty that does not run by itself: ``await duty(Stager).lead(term)`` is one round."""

    def make(kind: type[D], **options: Any) -> D:
        events = Events(probe)
        leadership = Leadership(db.database, 4.0, lambda: None, events)
        return kind(db.database, leadership, MaintenanceConfig(**options), events)

    return make


@pytest.fixture
async def maintain(db: ThrowawayDatabase, probe: Probe) -> AsyncIterator[Callable[..., Any]]:
    """Starts all duties with notifications: ``await maintain(unknown_grace=1.0)``; stops them at the end."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Maintenance:
            events = Events(probe)
            schedules = options.pop("schedules", ())
            config = MaintenanceConfig(**options)
            maintenance = Maintenance(db.database, config, events, schedules=schedules)
            notifications = Notifications(db.database, events)
            notifications.subscribe(maintenance.notified)
            stack.push_async_callback(notifications.stop)
            await notifications.start()
            stack.push_async_callback(maintenance.stop)
            await maintenance.start()
            return maintenance

        yield start
