"""Schedules as applications declare them, people write them by hand, and operators stop and run them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.errors import InputInvalid, OptionInvalid, ScheduleInvalid
from holdfast.maintenance.scheduler import LONGEST_REST, Scheduler
from holdfast.model.schedule import MissedTicks, Overlap
from holdfast.store import schedules
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.maintenance.timetable import HOURLY, JOBS, NOON, Make, look, minutes, stored, ticks
from tests.store.scene import Scene

# What the application declares


async def test_a_new_schedule_begins_with_its_next_tick(scene: Scene, clock: Clock, duty: Make) -> None:
    """Storing fires nothing: the first tick lies ahead."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    assert await stored(scene) == replace(HOURLY, next_tick_at=NOON + minutes(60))


async def test_a_restart_changes_neither_tick_nor_pause(
    scene: Scene, clock: Clock, duty: Make, probe: Probe
) -> None:
    """A schedule that is declared again as it was stays as the leader and the operator left it."""
    await clock.set(NOON)
    scheduler = duty(Scheduler)
    await scheduler.store([HOURLY])
    await scene.run(schedules.pause_schedule("hourly", True))
    before = await stored(scene)
    await clock.set(NOON + minutes(300))
    await scheduler.store([HOURLY])
    assert await stored(scene) == before
    assert len(probe.seen("schedule.stored")) == 1


async def test_new_arguments_keep_the_next_tick(scene: Scene, clock: Clock, duty: Make) -> None:
    """An edit that leaves the rule alone does not swallow a tick that is due."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    await clock.set(NOON + minutes(90))
    await duty(Scheduler).store([replace(HOURLY, args='{"n": 1}', priority=1)])
    changed = await stored(scene)
    assert (changed.args, changed.priority, changed.next_tick_at) == ('{"n": 1}', 1, NOON + minutes(60))


async def test_a_new_rule_begins_with_its_own_next_tick(scene: Scene, clock: Clock, duty: Make) -> None:
    """An edited rule misses nothing of the former one and keeps the operator's pause."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    await scene.run(schedules.pause_schedule("hourly", True))
    await clock.set(NOON + minutes(90))
    await duty(Scheduler).store([replace(HOURLY, cron=None, every=minutes(20))])
    changed = await stored(scene)
    assert (changed.cron, changed.every, changed.paused) == (None, minutes(20), True)
    assert changed.next_tick_at == NOON + minutes(100)


@pytest.mark.parametrize("name", [5, "", "a\0b", "\ud800", "x" * 201])
def test_a_name_that_cannot_be_stored_is_refused_when_it_is_registered(name: Any) -> None:
    """Not by the database, when a worker starts."""
    app = holdfast.App()

    @app.job
    async def beat() -> None:
        pass

    with pytest.raises(OptionInvalid, match="name is "):
        app.schedule(name, beat.job(), every=timedelta(hours=1))


async def test_a_wrong_schedule_ends_the_start(scene: Scene, duty: Make) -> None:
    """What the application declares is checked before it is stored."""
    with pytest.raises(ScheduleInvalid, match="unknown"):
        await duty(Scheduler).store([replace(HOURLY, timezone="Mars/Olympus")])
    assert await scene.run(schedules.list_schedules()) == []


async def test_a_worker_stores_the_schedules_of_its_application_and_fires_them(
    client: holdfast.Client, work: Any, eventually: Any, db: ThrowawayDatabase
) -> None:
    """From the decorator to the handler, with queue, priority, attempts and timeout of the kind."""
    app = holdfast.App()

    @app.job(queue="beats", priority=2, max_attempts=3, timeout=17)
    async def beat(n: int) -> int:
        return n

    app.schedule("heart", beat.job(n=7), every=timedelta(seconds=1))
    await work(app)
    ran = "select job_id from holdfast.finished_jobs where outcome = 'completed' order by job_id limit 1"
    job_id = await eventually(lambda: db.value(ran))
    assert await client.wait(job_id) == 7
    facts = (
        "select queue, priority, max_attempts, timeout, meta ->> 'schedule' from holdfast.jobs where id = $1"
    )
    assert await db.fetch(facts, job_id) == [("beats", 2, 3, 17.0, "heart")]


# Broken and hand-written schedules


async def test_a_broken_schedule_is_reported_once_and_stops_no_other(
    scene: Scene, clock: Clock, duty: Make, probe: Probe
) -> None:
    """Whatever somebody wrote by hand: bad rule, bad zone, bad option, arguments that are no object."""
    await clock.set(NOON)
    insert = """
        insert into holdfast.schedules (name, kind, queue, cron, timezone, options, args) values
            ('a rule', 'greet', 'default', 'every full moon', 'UTC', '{}', '{}'),
            ('b zone', 'greet', 'default', '* * * * *', 'Mars', '{}', '{}'),
            ('c option', 'greet', 'default', '* * * * *', 'UTC', '{"max_attempts": "many"}', '{}'),
            ('d args', 'greet', 'default', '* * * * *', 'UTC', '{}', '[1]'),
            ('e good', 'greet', 'default', '* * * * *', 'UTC', '{}', '{}')
    """
    await scene.db.fetch(insert)
    scheduler = duty(Scheduler)
    for minute in (1, 2):
        rest = await look(scene, scheduler, NOON + minutes(minute), clock)
        assert rest == LONGEST_REST
    told = [(told["schedule"], type(told["error"])) for told in probe.seen("schedule.invalid")]
    assert told == [
        ("a rule", ScheduleInvalid),
        ("b zone", ScheduleInvalid),
        ("c option", InputInvalid),
        ("d args", InputInvalid),
    ]
    names = await scene.db.fetch("select distinct meta ->> 'schedule' from holdfast.jobs")
    assert names == [("e good",)]


async def test_a_schedule_whose_job_is_refused_stops_no_other(
    scene: Scene, clock: Clock, duty: Make, probe: Probe, refuse: Any
) -> None:
    """Somebody's trigger may say no under any code."""
    await clock.set(NOON)
    scheduler = duty(Scheduler)
    await scheduler.store([replace(HOURLY, name="a"), replace(HOURLY, name="b")])
    await refuse("new.meta ->> 'schedule' = 'a'")
    await look(scene, scheduler, NOON + minutes(60), clock)
    assert await scene.db.fetch("select meta ->> 'schedule' from holdfast.jobs") == [("b",)]
    assert [told["schedule"] for told in probe.seen("schedule.invalid")] == ["a"]


async def test_a_schedule_written_by_hand_begins_with_its_next_tick(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """A row needs a name, a kind, a queue and a rule: the leader finds the first tick."""
    await clock.set(NOON + minutes(10))
    await scene.db.fetch(
        "insert into holdfast.schedules (name, kind, queue, cron) "
        "values ('own', 'greet', 'default', '0 * * * *')"
    )
    await look(scene, duty(Scheduler), NOON + minutes(11), clock)
    assert await ticks(scene) == []
    await look(scene, duty(Scheduler), NOON + minutes(60), clock)
    assert await ticks(scene) == ["13:00:00Z"]


async def test_a_repaired_schedule_fires_again(scene: Scene, clock: Clock, duty: Make, probe: Probe) -> None:
    """Once the rule can be read the schedule goes on, and a later fault is told anew."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    scheduler, edit = duty(Scheduler), "update holdfast.schedules set cron = $1"
    for minute, cron in ((61, "?"), (122, "0 * * * *"), (183, "?")):
        await scene.db.fetch(edit, cron)
        await look(scene, scheduler, NOON + minutes(minute), clock)
    assert await ticks(scene) == ["14:00:00Z"]
    assert len(probe.seen("schedule.invalid")) == 2


# What operators do


async def test_a_paused_schedule_fires_nothing_and_misses_nothing(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """What fell due during the pause is not made up for; the first tick after it fires."""
    await clock.set(NOON)
    await duty(Scheduler).store([replace(HOURLY, missed=MissedTicks.ALL)])
    assert await scene.run(schedules.pause_schedule("hourly", True))
    scheduler = duty(Scheduler)
    await look(scene, scheduler, NOON + minutes(130), clock)
    assert await scene.run(schedules.pause_schedule("hourly", False))
    await scheduler.lead(await scene.lead())
    assert await ticks(scene) == []
    await look(scene, scheduler, NOON + minutes(181), clock)
    assert await ticks(scene) == ["15:00:00Z"]


async def test_resuming_what_is_not_paused_keeps_the_tick_that_is_due(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """Only a pause swallows ticks."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    await clock.set(NOON + minutes(61))
    await scene.run(schedules.pause_schedule("hourly", False))
    await duty(Scheduler).lead(await scene.lead())
    assert await ticks(scene) == ["13:00:00Z"]


async def test_a_pause_that_comes_between_look_and_firing_is_obeyed(
    scene: Scene, clock: Clock, duty: Make
) -> None:
    """The leader's last word is the row as it stands when the tick is fired."""
    await clock.set(NOON)
    await duty(Scheduler).store([HOURLY])
    seen = await stored(scene)
    await clock.set(NOON + minutes(60))
    await scene.run(schedules.pause_schedule("hourly", True))
    moved = schedules.move_schedule(await scene.lead(), seen, NOON + minutes(120))
    assert await scene.run(moved) is None


async def test_an_operator_can_run_a_schedule_now(scene: Scene, clock: Clock, duty: Make) -> None:
    """The job comes beside the ticks, paused or not, and moves none of them."""
    await clock.set(NOON)
    await duty(Scheduler).store([replace(HOURLY, args='{"n": 1}', overlap=Overlap.SKIP)])
    await scene.run(schedules.pause_schedule("hourly", True))
    before = await stored(scene)
    job_id = await scene.run(schedules.run_schedule("hourly"))
    assert await scene.db.fetch(JOBS) == [
        (job_id, "greet", "default", 5, '{"n": 1}', '{"schedule": "hourly"}')
    ]
    assert await scene.states() == {job_id: "available"}
    assert await stored(scene) == before


@pytest.mark.parametrize("tick", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
async def test_a_tick_beyond_all_calendars_is_refused(scene: Scene, tick: str) -> None:
    """One row that cannot be read would hold up every schedule: the database does not take it."""
    insert = """
        insert into holdfast.schedules (name, kind, queue, every, next_tick_at)
        values ('odd', 'greet', 'default', 60, $1::text::timestamptz)"""
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.db.fetch(insert, tick)


async def test_what_does_not_exist_is_neither_run_nor_paused(scene: Scene) -> None:
    """Both say that there is no such schedule."""
    assert await scene.run(schedules.run_schedule("none")) is None
    assert not await scene.run(schedules.pause_schedule("none", True))
