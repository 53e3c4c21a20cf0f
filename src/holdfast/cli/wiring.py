"""Puts a process together: database, worker, maintenance, notifications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from holdfast.app.registry import App
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.maintenance import Maintenance
from holdfast.model.schedule import Schedule
from holdfast.runtime.events import Events
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.store.listen import Notifications
from holdfast.worker.config import WorkerConfig
from holdfast.worker.worker import Worker

# Whoever waits for the leader's duty asks for it once in a ttl; one answer more may be late.
READY_TTLS = 2


class Part(Protocol):
    """Something that a process runs beside its own work, from when the database is open until it closes."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End; safe to call twice."""


class MaintenanceProcess:
    """A process that stands for leader, does the leader's duties and runs no jobs.

    *parts* run beside that.
    """

    def __init__(
        self,
        database: DatabaseConfig,
        events: Events | None = None,
        maintenance: MaintenanceConfig | None = None,
        *,
        listens: bool = True,
        schedules: Sequence[Schedule] = (),
        worker_id: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.events = events or Events()
        self.database = Database(database)
        config = maintenance or MaintenanceConfig()
        self._patience = READY_TTLS * config.leader_ttl
        self.maintenance = Maintenance(
            self.database,
            config,
            self.events,
            schedules=schedules,
            worker_id=worker_id,
        )
        self.notifications = Notifications(self.database, self.events) if listens else None
        if self.notifications is not None:
            self.notifications.subscribe(self.maintenance.notified)
        self.parts: list[Part] = []

    async def start(self) -> None:
        """Connect, check the schema, and stand for leader."""
        await self._connect()
        await self.maintenance.start()
        await self._start_parts()

    async def stop(self, grace: float | None = None) -> bool:  # noqa: ARG002 - here nothing needs it
        """Resign and disconnect; True: nothing was left undone."""
        async with AsyncExitStack() as stack:
            self._disconnect_after(stack)
            await self.maintenance.stop()
            await self._stop_parts()
        return True

    def hurry(self) -> None:
        """End the grace of a stop now."""

    async def drained(self) -> None:
        """Wait until an operator has asked this process to leave and its last job has ended."""
        await asyncio.Event().wait()

    def lives(self) -> bool:
        """False when only a restart helps."""
        return True

    def ready(self) -> bool:
        """True while this process stands for leader and the database knows of it."""
        leadership = self.maintenance.leadership
        return leadership.is_running and time.monotonic() - leadership.turned_at < self._patience

    def running_kinds(self) -> Sequence[str]:
        """Return the kind of every attempt that runs now."""
        return ()

    async def _connect(self) -> None:
        await self.database.open()
        await migrate.check(self.database)
        if self.notifications is not None:
            await self.notifications.start()

    async def _start_parts(self) -> None:
        for part in self.parts:
            await part.start()

    async def _stop_parts(self) -> None:
        for part in reversed(self.parts):
            await part.stop()

    def _disconnect_after(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.database.close)
        if self.notifications is not None:
            stack.push_async_callback(self.notifications.stop)


class WorkerProcess(MaintenanceProcess):
    """Everything that one worker process runs: the worker, and maintenance beside it."""

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        events: Events | None = None,
        maintenance: MaintenanceConfig | None = None,
    ) -> None:
        super().__init__(
            config.database,
            events,
            maintenance,
            listens=config.listens,
            schedules=tuple(app.schedules.values()),
            worker_id=lambda: self.worker.worker_id or None,
        )
        self.worker = Worker(app, self.database, config, self.events)
        self._drain_asked = asyncio.Event()
        self.worker.on_drain = self._drain_asked.set
        if self.notifications is not None:
            self.notifications.subscribe(self.worker.notified)

    async def start(self) -> None:
        """Connect, check the schema, and begin to work."""
        await self._connect()
        await self.worker.start()
        await self.maintenance.start()
        await self._start_parts()

    async def stop(self, grace: float | None = None) -> bool:
        """Stop in good order; True if every job finished within the grace."""
        self.worker.drain()
        async with AsyncExitStack() as stack:
            self._disconnect_after(stack)
            await self.maintenance.stop()
            await self._stop_parts()
            return await self.worker.stop(grace)

    def hurry(self) -> None:
        """End the grace of a stop now."""
        self.worker.hurry()

    async def drained(self) -> None:
        """Wait until an operator has asked this worker to leave and its last job has ended."""
        await self._drain_asked.wait()
        await self.worker.held.wait_empty()

    def lives(self) -> bool:
        """False when only a restart helps: the loop stands still for longer than any job may take."""
        return self.worker.lives

    def ready(self) -> bool:
        """True while the worker takes jobs and its lease is young."""
        return self.worker.ready

    def running_kinds(self) -> Sequence[str]:
        """Return the kind of every attempt that runs now."""
        return [running.claimed.kind for running in tuple(self.worker.held.running.values())]
