"""Puts a worker process together: database, worker, maintenance, notifications."""

from __future__ import annotations

from contextlib import AsyncExitStack

from holdfast.app.registry import App
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.maintenance import Maintenance
from holdfast.runtime.events import Events
from holdfast.store import migrate
from holdfast.store.database import Database
from holdfast.store.listen import Notifications
from holdfast.worker.config import WorkerConfig
from holdfast.worker.worker import Worker


class WorkerProcess:
    """Everything that one worker process runs."""

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        events: Events | None = None,
        maintenance: MaintenanceConfig | None = None,
    ) -> None:
        self.events = events or Events()
        self.database = Database(config.database)
        self.worker = Worker(app, self.database, config, self.events)
        self.maintenance = Maintenance(
            self.database,
            maintenance or MaintenanceConfig(),
            self.events,
            schedules=tuple(app.schedules.values()),
            worker_id=lambda: self.worker.worker_id or None,
        )
        self.notifications = Notifications(self.database, self.events) if config.listens else None
        if self.notifications is not None:
            self.notifications.subscribe(self.worker.notified)
            self.notifications.subscribe(self.maintenance.notified)

    async def start(self) -> None:
        """Connect, check the schema, and begin to work."""
        await self.database.open()
        await migrate.check(self.database)
        if self.notifications is not None:
            await self.notifications.start()
        await self.worker.start()
        await self.maintenance.start()

    async def stop(self, grace: float | None = None) -> bool:
        """Stop in good order; True if every job finished within the grace."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.database.close)
            if self.notifications is not None:
                stack.push_async_callback(self.notifications.stop)
            await self.maintenance.stop()
            return await self.worker.stop(grace)
