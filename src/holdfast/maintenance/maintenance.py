"""All duties of one process, started and stopped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.counter import Counter
from holdfast.maintenance.deliverer import Deliverer
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.overseer import Overseer
from holdfast.maintenance.partitioner import Partitioner
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.rescuer import Rescuer
from holdfast.maintenance.scheduler import Scheduler
from holdfast.maintenance.stager import Stager
from holdfast.model.schedule import Schedule
from holdfast.runtime.events import Events
from holdfast.store.database import Database


class Maintenance:
    """Stands ready to lead; does its duties while it does.

    *schedules* are those of the application, stored at start; *worker_id* answers which worker stands.
    """

    def __init__(
        self,
        database: Database,
        config: MaintenanceConfig,
        events: Events,
        *,
        schedules: Sequence[Schedule] = (),
        worker_id: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._schedules = schedules
        self.leadership = Leadership(database, config.leader_ttl, worker_id, events)
        shared = (database, self.leadership, config, events)
        self.stager, self.scheduler = Stager(*shared), Scheduler(*shared)
        self.deliverer = Deliverer(*shared)
        self.overseer = Overseer(*shared)
        self.duties: tuple[Duty, ...] = (
            self.stager,
            Rescuer(*shared),
            self.overseer,
            self.scheduler,
            Counter(*shared),
            Partitioner(*shared),
            Pruner(*shared),
            self.deliverer,
        )
        self.leadership.changed = self._wake_all

    async def start(self) -> None:
        """Store the schedules and stand for leader; raises `ScheduleInvalid`."""
        await self.scheduler.store(self._schedules)
        for service in (*self.duties, self.leadership):
            await service.start()

    async def stop(self) -> None:
        """End the duties, then resign."""
        for service in (*self.duties, self.leadership):
            await service.stop()

    def notified(self, topic: str, _rest: str) -> None:
        """React to a notification; see `store.listen`."""
        match topic:
            case "stage":
                self.stager.wake()
            case "schedules":
                self.scheduler.wake()
            case "runners":
                self.overseer.wake()
            case "deliveries":
                self.deliverer.wake()
            case "leader":
                self.leadership.wake()
            case "reconnected":
                # Anything may have been missed.
                self.leadership.wake()
                self._wake_all()

    def _wake_all(self) -> None:
        for duty in self.duties:
            duty.wake()
