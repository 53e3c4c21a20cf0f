"""All duties of one process, started and stopped together."""

from __future__ import annotations

from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.rescuer import Rescuer
from holdfast.maintenance.stager import Stager
from holdfast.runtime.events import Events
from holdfast.store.database import Database


class Maintenance:
    """Stands ready to lead; does its duties while it does."""

    def __init__(self, database: Database, holder: str, events: Events) -> None:
        self.leadership = Leadership(database, holder, events)
        self.stager = Stager(database, self.leadership, events)
        self.duties = (self.stager, Rescuer(database, self.leadership, events))
        self.leadership.changed = self._changed

    async def start(self) -> None:
        """Stand for leader."""
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
            case "leader" | "reconnected":
                self.leadership.wake()

    def _changed(self) -> None:
        for duty in self.duties:
            duty.wake()
