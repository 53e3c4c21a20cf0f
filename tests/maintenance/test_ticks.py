"""Ticks make jobs: each one once, whatever the clocks and the leaders do."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.maintenance.scheduler import LONGEST_REST, Scheduler
from holdfast.model.schedule import MissedTicks, Overlap, Schedule
from holdfast.store import schedules
from holdfast.testing import Clock, Probe
from tests.maintenance.timetable import HOURLY, JOBS, NOON, Make, finish_all, look, minutes, stored, ticks
from tests.store.scene import Scene


async def test_a_tick_makes_one_job_that_says_where_it_comes_from(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """The job has the schedule's kind, queue, priority and arguments; its meta names schedule and tick."""
    await clock.set(NOON)
    schedule = replace(HOURLY, queue="reports", priority=2, args='{"n": 1}')
    await duty(Scheduler).store([schedule])
    await look(scene, duty(Scheduler), NOON + minutes(60), clock)
    ((job_id, *facts),) = await scene.db.fetch(JOBS)
    meta = '{"tick": "2026-01-15T13:00:00Z", "schedule": "hourly"}'
    assert facts == ["greet", "reports", 2, '{"n": 1}', meta]
    assert await stored(scene) == replace(
        schedule, next_tick_at=NOON + minutes(120), last_tick_at=NOON + minutes(60), last_job_id=job_id
    )


async def test_the_scheduler_rests_until_the_earliest_tick(scene: Scene, clock: Clock, duty: Make) -> None:
    """It wakes exactly at the next tick of all; without one near it still looks now and then."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY, replace(HOURLY, name="often", cron=None, every=minutes(20))])
    assert await look(scene, duty(Scheduler), NOON, clock) == LONGEST_REST
    rest = await look(scene, duty(Scheduler), NOON + timedelta(minutes=19, seconds=48), clock)
    assert rest == pytest.approx(12.0)
    assert await ticks(scene) == []


async def test_a_changed_schedule_wakes_the_scheduler(maintain: Any, duty: Make, probe: Probe) -> None:
    """A schedule stored by another process fires in time though the leader was asleep."""
    await maintain()
    await probe.wait_for("listen.connected")
    await probe.wait_for("queues.counted")
    await duty(Scheduler).store([Schedule(name="new", kind="greet", every=timedelta(seconds=1))])
    await probe.wait_for("schedule.fired", timeout=LONGEST_REST - 10)


@pytest.mark.parametrize(
    ("missed", "fired"),
    [
        (MissedTicks.SKIP, []),
        (MissedTicks.ONCE, ["16:00:00Z"]),
        (MissedTicks.ALL, ["14:00:00Z", "15:00:00Z", "16:00:00Z"]),
    ],
)
async def test_missed_ticks_follow_the_policy(
    scene: Scene, clock: Clock, duty: Make, missed: MissedTicks, fired: list[str]
) -> None:
    """After four hours without a leader: none, the last, or all up to the limit, which is three here."""
    await clock.set(NOON)
    await duty(Scheduler).store([replace(HOURLY, missed=missed, max_missed=3)])
    await look(scene, duty(Scheduler), NOON + minutes(270), clock)
    assert await ticks(scene) == fired
    assert (await stored(scene)).next_tick_at == NOON + minutes(300)
    await look(scene, duty(Scheduler), NOON + minutes(300), clock)
    assert await ticks(scene) == [*fired, "17:00:00Z"]


async def test_ticks_do_not_overlap_where_they_must_not(
    scene: Scene, clock: Clock, duty: Make, probe: Probe
) -> None:
    """While the former tick's job lives, ticks are skipped; the first one after its end fires."""
    await clock.set(NOON)
    await duty(Scheduler).store([replace(HOURLY, overlap=Overlap.SKIP)])
    scheduler = duty(Scheduler)
    for hour in (1, 2, 3):
        await look(scene, scheduler, NOON + minutes(60 * hour), clock)
    assert await ticks(scene) == ["13:00:00Z"]
    assert [told["skipped"] for told in probe.seen("schedule.fired")] == [0, 1, 1]
    await finish_all(scene)
    await look(scene, scheduler, NOON + minutes(240), clock)
    assert await ticks(scene) == ["13:00:00Z", "16:00:00Z"]


async def test_ticks_may_overlap_where_they_may(scene: Scene, clock: Clock, duty: Make) -> None:
    """By default a tick fires whether or not the former job has ended."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    for hour in (1, 2):
        await look(scene, duty(Scheduler), NOON + minutes(60 * hour), clock)
    assert await ticks(scene) == ["13:00:00Z", "14:00:00Z"]


async def test_leaders_that_overlap_fire_every_tick_once(scene: Scene, clock: Clock, duty: Make) -> None:
    """Six who all believe to lead in the same term, at once, make one job for each tick."""
    await clock.set(NOON)
    await duty(Scheduler).store([replace(HOURLY, missed=MissedTicks.ALL)])
    await clock.set(NOON + minutes(200))
    term = await scene.lead()
    await asyncio.gather(*(duty(Scheduler).lead(term) for _ in range(6)))
    assert await ticks(scene) == ["13:00:00Z", "14:00:00Z", "15:00:00Z"]


async def test_a_leader_that_comes_second_waits_and_fires_nothing(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """While the first one's transaction is open the tick is neither fired again nor lost."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    await clock.set(NOON + minutes(60))
    term, first = await scene.lead(), await scene.session()
    transaction = first.transaction()
    await transaction.start()
    moved = schedules.move_schedule(term, await stored(scene), NOON + minutes(120))
    assert await scene.run_on(first, moved) is False
    second = asyncio.create_task(duty(Scheduler).lead(term))
    waiting = "select 1 from pg_locks where not granted and pid <> pg_backend_pid()"
    async with asyncio.timeout(20):
        while not await scene.db.value(waiting):  # noqa: ASYNC110 - a lock wait has no event
            await asyncio.sleep(0.01)
    await scene.run_on(first, schedules.enqueue_ticks("hourly", [NOON + minutes(60)]))
    await transaction.commit()
    await second
    assert await ticks(scene) == ["13:00:00Z"]


async def test_a_look_that_is_out_of_date_fires_nothing(scene: Scene, clock: Clock, duty: Make) -> None:
    """A tick that was fired, and whose job has ended since, is not fired again by a leader that was slow."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    seen = await stored(scene)
    await look(scene, duty(Scheduler), NOON + minutes(60), clock)
    await finish_all(scene)
    moved = schedules.move_schedule(await scene.lead(), seen, NOON + minutes(120))
    assert await scene.run(moved) is None


async def test_a_clock_that_was_ahead_leaves_no_schedule_silent(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """Once it is set back, the rule's next tick fires, and the one of then does not stand in its way."""
    scheduler = duty(Scheduler)
    await clock.set(NOON)
    await scheduler.store([HOURLY])
    await look(scene, scheduler, NOON + timedelta(days=365), clock)
    for minute in (1, 60, 60, 120):
        await finish_all(scene)
        await look(scene, scheduler, NOON + minutes(minute), clock)
    assert await ticks(scene) == ["2027-01-15T12:00:00Z", "13:00:00Z", "14:00:00Z"]


async def test_a_clock_that_is_set_back_a_little_repeats_no_tick(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """It fired the first time round."""
    scheduler = duty(Scheduler)
    await clock.set(NOON)
    await scheduler.store([HOURLY])
    for minute in (60, 59, 60, 120):
        await look(scene, scheduler, NOON + minutes(minute), clock)
        await finish_all(scene)
    assert await ticks(scene) == ["13:00:00Z", "14:00:00Z"]


async def test_an_edit_with_the_same_tick_is_not_undone(scene: Scene, clock: Clock, duty: Make) -> None:
    """The leader looked before it, and would go on by the former rule."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    seen = await stored(scene)
    edited = replace(HOURLY, cron="*/20 * * * *")
    await scene.run(schedules.put_schedule(edited, NOON + minutes(60)))
    term = await scene.lead()
    assert await scene.run(schedules.move_schedule(term, seen, NOON + minutes(120))) is None
    await look(scene, duty(Scheduler), NOON + minutes(60), clock)
    await look(scene, duty(Scheduler), NOON + minutes(80), clock)
    assert await ticks(scene) == ["13:00:00Z", "13:20:00Z"]


async def test_an_interval_of_many_digits_fires(scene: Scene, clock: Clock, duty: Make) -> None:
    """Somebody wrote it by hand, finer than it is told apart from another."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.schedules (name, kind, args, queue, every) "
        "values ('fine', 'greet', '{}', 'default', 3600.1234567891)"
    )
    await duty(Scheduler).lead(await scene.lead())
    assert (await stored(scene, "fine")).next_tick_at != NOON


async def test_a_firing_that_breaks_off_is_made_up_for(scene: Scene, clock: Clock, duty: Make) -> None:
    """The schedule moves on together with its job or not at all."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    await clock.set(NOON + minutes(60))
    term, dying = await scene.lead(), await scene.session()
    await dying.execute("begin")
    await scene.run_on(dying, schedules.move_schedule(term, await stored(scene), NOON + minutes(120)))
    await scene.run_on(dying, schedules.enqueue_ticks("hourly", [NOON + minutes(60)]))
    dying.terminate()
    await duty(Scheduler).lead(term)
    assert await ticks(scene) == ["13:00:00Z"]


async def test_a_tick_turned_back_by_hand_does_not_make_a_second_live_job(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """The unique key of a tick stands where the schedule's own record was overwritten."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    for _ in range(2):
        await look(scene, duty(Scheduler), NOON + minutes(60), clock)
        await scene.db.fetch("update holdfast.schedules set next_tick_at = $1", NOON + minutes(60))
    assert await ticks(scene) == ["13:00:00Z"]


# The clocks change


@pytest.mark.parametrize(
    ("cron", "start", "fired"),
    [
        # Clocks go forward from 2 to 3 on 29 March: half past two never comes and fires at three.
        ("30 2 * * *", datetime(2026, 3, 29, tzinfo=UTC), ["2026-03-29T01:00:00Z"]),
        # What speaks of time that passes goes on every hour, of which one is missing on the wall.
        ("0 * * * *", datetime(2026, 3, 29, tzinfo=UTC), [f"2026-03-29T0{n}:00:00Z" for n in (1, 2, 3)]),
        # Clocks go back from 3 to 2 on 25 October: half past two comes twice and fires the first time.
        ("30 2 * * *", datetime(2026, 10, 24, 23, tzinfo=UTC), ["2026-10-25T00:30:00Z"]),
        (
            "0 * * * *",
            datetime(2026, 10, 24, 23, tzinfo=UTC),
            [f"2026-10-25T0{n}:00:00Z" for n in (0, 1, 2)],
        ),
    ],
    ids=["spring, by the wall", "spring, every hour", "autumn, by the wall", "autumn, every hour"],
)
async def test_ticks_are_right_while_the_clocks_change(
    scene: Scene, clock: Clock, duty: Make, cron: str, start: datetime, fired: list[str]
) -> None:
    """In Berlin, looked at every ten minutes for hours on end, each tick fires once and at its time."""
    await clock.set(start)
    schedule = replace(HOURLY, cron=cron, timezone="Europe/Berlin", missed=MissedTicks.SKIP)
    await duty(Scheduler).store([schedule])
    scheduler = duty(Scheduler)
    for step in range(1, 22):
        await look(scene, scheduler, start + minutes(10 * step), clock)
    assert await ticks(scene) == fired
