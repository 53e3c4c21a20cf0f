"""Due ticks: the policies for missed ticks and for overlap."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ScheduleInvalid
from holdfast.model.schedule import MissedTicks, Overlap, Schedule
from holdfast.rules.ticks import (
    COUNTED,
    GRACE,
    TickPlan,
    check_schedule,
    due_ticks,
    first_tick,
    rhythm_of,
    without_overlap,
)

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOURLY = Schedule(name="report", kind="send_report", cron="0 * * * *", next_tick_at=NOON)

spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3))
schedules = st.builds(
    Schedule,
    name=st.just("s"),
    kind=st.just("k"),
    cron=st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "0 */3 * * 1-5", "@hourly"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    missed=st.sampled_from(MissedTicks),
    max_missed=st.integers(1, 20),
    next_tick_at=st.datetimes(datetime(2025, 3, 27), datetime(2025, 4, 7), timezones=st.just(UTC)),  # noqa: DTZ001 (hypothesis adds the zone)
)


def test_nothing_is_due_before_the_next_tick() -> None:
    """An early look fires nothing and leaves the next tick where it is."""
    assert due_ticks(HOURLY, now=NOON - MINUTE) == TickPlan((), 0, NOON)


@pytest.mark.parametrize("missed", list(MissedTicks))
def test_tick_fires_at_its_very_instant_under_every_policy(missed: MissedTicks) -> None:
    """A single due tick fires, and the next one is an hour later."""
    plan = due_ticks(replace(HOURLY, missed=missed), now=NOON)
    assert plan == TickPlan((NOON,), 0, NOON + timedelta(hours=1))


@pytest.mark.parametrize(
    ("missed", "max_missed", "fired", "skipped"),
    [
        (MissedTicks.SKIP, 100, [], 4),
        (MissedTicks.ONCE, 100, [15], 3),
        (MissedTicks.ALL, 100, [12, 13, 14, 15], 0),
        (MissedTicks.ALL, 2, [14, 15], 2),
    ],
)
def test_missed_ticks_follow_the_policy(
    missed: MissedTicks, max_missed: int, fired: list[int], skipped: int
) -> None:
    """Four ticks were missed when the leader looks at 15:20."""
    schedule = replace(HOURLY, missed=missed, max_missed=max_missed)
    plan = due_ticks(schedule, now=NOON.replace(hour=15, minute=20))
    assert [tick.hour for tick in plan.fire] == fired
    assert plan.skipped == skipped
    assert plan.next_tick_at == NOON.replace(hour=16)


@pytest.mark.parametrize(("late", "fires"), [(GRACE, True), (GRACE + timedelta.resolution, False)])
def test_skip_fires_a_tick_within_the_grace(late: timedelta, fires: bool) -> None:
    """A tick that is 60 seconds late is on time; a moment later it is missed."""
    plan = due_ticks(replace(HOURLY, missed=MissedTicks.SKIP), now=NOON + late)
    assert (len(plan.fire), plan.skipped) == ((1, 0) if fires else (0, 1))


def test_skip_fires_the_newest_of_several_when_it_is_on_time() -> None:
    """After an outage that ends just after a tick, that tick alone fires."""
    now = NOON.replace(hour=15, second=5)
    plan = due_ticks(replace(HOURLY, missed=MissedTicks.SKIP), now=now)
    assert (plan.fire, plan.skipped) == ((NOON.replace(hour=15),), 3)


def test_paused_schedule_fires_and_misses_nothing() -> None:
    """A pause moves the next tick past now without counting the ticks in between."""
    plan = due_ticks(replace(HOURLY, paused=True), now=NOON + timedelta(hours=5, minutes=1))
    assert plan == TickPlan((), 0, NOON + timedelta(hours=6))


def test_new_schedule_begins_with_its_next_tick() -> None:
    """A schedule that was never planned fires nothing at its first look."""
    new = replace(HOURLY, next_tick_at=None)
    now = NOON + MINUTE
    assert due_ticks(new, now=now) == TickPlan((), 0, first_tick(new, now=now))
    assert first_tick(new, now=now) == NOON + timedelta(hours=1)


def test_tick_that_an_edit_took_out_of_the_rhythm_does_not_fire() -> None:
    """The stored next tick is only fired if the rule still has it."""
    edited = replace(HOURLY, cron="30 * * * *")
    assert due_ticks(edited, now=NOON + MINUTE) == TickPlan((), 0, NOON + timedelta(minutes=30))


def test_interval_fires_at_multiples_from_the_epoch() -> None:
    """Every leader finds the same ticks for an interval, whenever it looks."""
    schedule = Schedule(
        name="s", kind="k", every=timedelta(minutes=20), next_tick_at=NOON, missed=MissedTicks.ALL
    )
    plan = due_ticks(schedule, now=NOON + timedelta(minutes=45))
    assert [tick.minute for tick in plan.fire] == [0, 20, 40]
    assert plan.next_tick_at == NOON + timedelta(hours=1)


@pytest.mark.parametrize(
    ("cron", "every", "step"),
    [("* * * * *", None, MINUTE), (None, timedelta(seconds=1), timedelta(seconds=1))],
)
def test_clock_that_jumped_by_decades_costs_no_decades_of_counting(
    cron: str | None, every: timedelta | None, step: timedelta
) -> None:
    """The newest ticks still fire, and the count stops at a bound."""
    schedule = replace(HOURLY, cron=cron, every=every, missed=MissedTicks.ALL, max_missed=3)
    plan = due_ticks(replace(schedule, next_tick_at=datetime(1971, 1, 1, tzinfo=UTC)), now=NOON)
    assert plan.fire == (NOON - 2 * step, NOON - step, NOON)
    assert COUNTED - 3 <= plan.skipped < COUNTED * 4


def test_rare_tick_is_found_after_years() -> None:
    """A yearly tick that nobody fired for months fires once, however long ago it was."""
    yearly = replace(HOURLY, cron="@yearly", next_tick_at=datetime(2020, 1, 1, tzinfo=UTC))
    plan = due_ticks(yearly, now=NOON)
    assert (plan.fire, plan.skipped) == ((datetime(2025, 1, 1, tzinfo=UTC),), 5)


@settings(max_examples=150, deadline=None)
@given(schedule=schedules, span=spans)
def test_plan_agrees_with_the_list_of_all_due_ticks(schedule: Schedule, span: timedelta) -> None:
    """Fired and skipped ticks are together exactly the due ones, and the newest are fired."""
    planned = schedule.next_tick_at
    assert planned is not None
    now = planned + span
    due = rhythm_of(schedule).between(planned - timedelta.resolution, now)
    plan = due_ticks(schedule, now=now)
    wanted = {
        MissedTicks.SKIP: tuple(tick for tick in due[-1:] if now - tick <= GRACE),
        MissedTicks.ONCE: due[-1:],
        MissedTicks.ALL: due[-schedule.max_missed :],
    }
    assert plan.fire == wanted[schedule.missed]
    assert plan.skipped == len(due) - len(plan.fire)
    assert plan.next_tick_at > now


@settings(max_examples=75, deadline=None)
@given(schedule=schedules, spans=st.lists(spans, min_size=1, max_size=6))
def test_no_tick_fires_twice_over_many_looks(schedule: Schedule, spans: list[timedelta]) -> None:
    """Look after look, the fired ticks only ever move forward."""
    now = schedule.next_tick_at
    assert now is not None
    fired: list[datetime] = []
    for span in spans:
        now += span
        plan = due_ticks(schedule, now=now)
        fired.extend(plan.fire)
        schedule = replace(schedule, next_tick_at=plan.next_tick_at)
    assert fired == sorted(set(fired))


@pytest.mark.parametrize(
    ("overlap", "former_is_live", "hours", "skipped"),
    [
        (Overlap.ALLOW, True, [12, 13], 1),
        (Overlap.SKIP, True, [], 3),
        (Overlap.SKIP, False, [13], 2),
    ],
)
def test_overlap_policy_decides_beside_a_live_job(
    overlap: Overlap, former_is_live: bool, hours: list[int], skipped: int
) -> None:
    """Skip fires nothing beside a live job, and never two ticks together."""
    plan = TickPlan((NOON, NOON.replace(hour=13)), 1, NOON.replace(hour=14))
    left = without_overlap(plan, overlap, former_is_live=former_is_live)
    assert [tick.hour for tick in left.fire] == hours
    assert (left.skipped, left.next_tick_at) == (skipped, plan.next_tick_at)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cron": None}, "exactly one of cron and every"),
        ({"every": MINUTE}, "exactly one of cron and every"),
        ({"cron": None, "every": 5}, "every is 5: give a timedelta"),
        ({"cron": 5}, "cron is 5: give text"),
        ({"cron": None, "every": timedelta(0)}, "from 1 second"),
        ({"cron": "* * * *"}, "write five"),
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"name": ""}, "a name and a kind"),
        ({"kind": ""}, "a name and a kind"),
        ({"priority": 10}, "priority is 10"),
        ({"max_missed": 0}, "max_missed is 0"),
        ({"max_missed": 1_001}, "max_missed is 1001"),
        ({"max_missed": "5"}, "max_missed is '5': give a whole number"),
        ({"max_missed": 1.5}, "max_missed is 1.5: give a whole number"),
        ({"timezone": None}, "timezone is None: give text"),
        ({"cron": None, "every": MINUTE, "timezone": 5}, "timezone is 5: give text"),
    ],
)
def test_bad_schedule_is_refused(change: dict[str, object], named: str) -> None:
    """The error names the option that is wrong."""
    with pytest.raises(ScheduleInvalid, match=named):
        check_schedule(replace(HOURLY, **change))  # type: ignore[arg-type]


def test_good_schedule_is_accepted() -> None:
    """A schedule with a rule and default options may be stored."""
    check_schedule(HOURLY)
