"""Turns ticks of schedules into jobs, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.errors import HoldfastError
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.model.schedule import Schedule
from holdfast.rules.ticks import check_schedule, due_ticks, first_tick, has_strayed, without_overlap
from holdfast.runtime.events import Events
from holdfast.store import failures, schedules
from holdfast.store.database import Database

SHORTEST_REST, LONGEST_REST = 0.005, 30.0


class Scheduler(Duty):
    """Fires what is due, then sleeps until the next tick of all; a change of a schedule wakes it.

    A tick fires by moving its schedule on and enqueueing its job in one transaction, so it fires once
    however many leaders believe in themselves.  A schedule that cannot be understood is reported once
    and holds up no other.
    """

    name = "scheduler"

    def __init__(
        self, database: Database, leadership: Leadership, config: MaintenanceConfig, events: Events
    ) -> None:
        super().__init__(database, leadership, config, events)
        self._reported: dict[str, str] = {}
        self._standing: dict[str, tuple[Schedule, datetime]] = {}

    async def store(self, declared: Sequence[Schedule]) -> None:
        """Store the schedules of the application; raises `ScheduleInvalid`.  Not only for the leader."""
        if not declared:
            return
        now = await self.database.run(schedules.read_clock())
        for schedule in declared:
            check_schedule(schedule)
            put = schedules.put_schedule(schedule, first_tick(schedule, now=now))
            if await self.database.run(put):
                self.events.emit("schedule.stored", schedule=schedule.name)

    async def lead(self, term: int) -> float:
        """Fire all that is due."""
        now = await self.database.run(schedules.read_clock())
        nexts = [
            next_tick_at
            for schedule in await self.database.run(schedules.list_schedules())
            if not schedule.paused and (next_tick_at := await self._look_at(term, schedule, now)) is not None
        ]
        rest = (min(nexts) - now).total_seconds() if nexts else LONGEST_REST
        return min(LONGEST_REST, max(SHORTEST_REST, rest))

    async def _look_at(self, term: int, schedule: Schedule, now: datetime) -> datetime | None:
        """Fire *schedule* if it is due; answer its next tick, None where it has no sensible one."""
        try:
            if (
                schedule.next_tick_at is not None
                and schedule.next_tick_at > now
                and self._stands(schedule, now)
            ):
                return schedule.next_tick_at
            check_schedule(schedule)
            next_tick_at = await self._fire(term, schedule, now)
        except HoldfastError as error:
            # Be it the rule that cannot be read, or the job that is refused: others have theirs.
            if not failures.may_be_of_a_value(error):
                raise
            self._report(schedule.name, error)
            return None
        self._reported.pop(schedule.name, None)
        return next_tick_at

    def _stands(self, schedule: Schedule, now: datetime) -> bool:
        # Reading a rule may take a millisecond, and looks are many: once will do until the clock is set back.
        known, since = self._standing.get(schedule.name, (None, now))
        if known == schedule and since <= now:
            return True
        if has_strayed(schedule, now=now):
            return False
        self._standing[schedule.name] = (schedule, now)
        return True

    async def _fire(self, term: int, schedule: Schedule, now: datetime) -> datetime:
        plan = due_ticks(schedule, now=now)
        job_ids: list[int] = []
        async with self.database.transaction() as connection:
            former_is_live = await self.database.run(
                schedules.move_schedule(term, schedule, plan.next_tick_at), connection
            )
            if former_is_live is None:
                return plan.next_tick_at
            plan = without_overlap(plan, schedule.overlap, former_is_live=former_is_live)
            if plan.fire:
                enqueue = schedules.enqueue_ticks(schedule.name, plan.fire)
                job_ids = await self.database.run(enqueue, connection)
                noted = schedules.note_fired(schedule.name, plan.fire[-1], job_ids[-1])
                await self.database.run(noted, connection)
        if plan.fire or plan.skipped:
            self.events.emit(
                "schedule.fired",
                schedule=schedule.name,
                ticks=plan.fire,
                job_ids=job_ids,
                skipped=plan.skipped,
            )
        return plan.next_tick_at

    def _report(self, name: str, error: Exception) -> None:
        if self._reported.get(name) != str(error):
            self._reported[name] = str(error)
            self.events.emit("schedule.invalid", schedule=name, error=error)
