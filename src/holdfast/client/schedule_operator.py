"""What an operator sees of schedules and does to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import ScheduleNotFound
from holdfast.model.audit import Mandate
from holdfast.model.schedule import Schedule
from holdfast.store import audit, schedules
from holdfast.store.database import Connection, Database


class ScheduleOperator:
    """Lists schedules, pauses, runs and deletes them.  Raises `ScheduleNotFound` for an unknown name."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def find(self) -> Sequence[Schedule]:
        """Return all schedules, in order of name."""
        return await self._database.run(schedules.list_schedules())

    async def pause(self, name: str, reason: str | None = None) -> None:
        """Let a schedule make no jobs; ticks in a pause are not missed ones."""
        await self._set_paused(name, True, reason)

    async def resume(self, name: str, reason: str | None = None) -> None:
        """Let a schedule make jobs again, from now on."""
        await self._set_paused(name, False, reason)

    async def delete(self, name: str, reason: str | None = None) -> None:
        """Forget a schedule; an application that still declares it stores it again when a worker starts."""
        async with self._database.transaction() as connection:
            former = await self._database.run(schedules.delete_schedule(name), connection)
            if former is None:
                raise ScheduleNotFound(name)
            detail = {"before": msgspec.json.decode(former)}
            await self._note(connection, "schedule.delete", name, reason, detail)

    async def run(self, name: str, reason: str | None = None) -> int:
        """Enqueue a job of a schedule now, beside its ticks, paused or not; answers the job's id."""
        async with self._database.transaction() as connection:
            job_id = await self._database.run(schedules.run_schedule(name), connection)
            if job_id is None:
                raise ScheduleNotFound(name)
            await self._note(connection, "schedule.run", name, reason, {"after": {"job_id": job_id}})
        return job_id

    async def _set_paused(self, name: str, paused: bool, reason: str | None) -> None:
        async with self._database.transaction() as connection:
            change = await self._database.run(schedules.pause_schedule(name, paused), connection)
            if change is None:
                raise ScheduleNotFound(name)
            action = "schedule.pause" if paused else "schedule.resume"
            await self._note(connection, action, name, reason, msgspec.json.decode(change))

    async def _note(
        self, connection: Connection, action: str, name: str, reason: str | None, detail: dict[str, Any]
    ) -> None:
        mandate = Mandate(self._actor, reason)
        await self._database.run(audit.write_audit(mandate, action, f"schedule {name}", detail), connection)
