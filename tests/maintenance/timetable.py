"""Schedules at hand: one that ticks every hour, a look of the leader at a given time, what was fired."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from holdfast.maintenance.scheduler import Scheduler
from holdfast.model.schedule import Schedule
from holdfast.store import schedules
from holdfast.testing import Clock
from tests.store.scene import Scene

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
HOURLY = Schedule(name="hourly", kind="greet", cron="0 * * * *")
JOBS = "select id, kind, queue, priority, args::text, meta::text from holdfast.jobs order by id"
TICKS = "select meta ->> 'tick' from holdfast.jobs where meta ? 'tick' order by id"
Make = Callable[..., Scheduler]


def minutes(count: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=count)


async def ticks(scene: Scene) -> list[str]:
    """The ticks that were fired, in order, without the date where it is the test's."""
    return [str(row[0]).removeprefix("2026-01-15T") for row in await scene.db.fetch(TICKS)]


async def stored(scene: Scene, name: str = "hourly") -> Schedule:
    """A schedule as it is in the database."""
    return next(one for one in await scene.run(schedules.list_schedules()) if one.name == name)


async def look(scene: Scene, scheduler: Scheduler, at: datetime, clock: Clock) -> float:
    """Let the leader look at a time; answers how long it rests."""
    await clock.set(at)
    return await scheduler.lead(await scene.lead())


async def finish_all(scene: Scene) -> None:
    """End all live jobs."""
    claimed = await scene.claim(await scene.worker(), limit=1000)
    await scene.complete(*claimed)
