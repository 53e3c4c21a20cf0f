"""Cron: when ticks are, above all where clocks jump."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ScheduleInvalid
from holdfast.rules.cron import EPOCH, LONGEST_INTERVAL, Cron, Interval

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
# Days on which the clock jumps; Santiago's jumps at midnight, Lord Howe's by half an hour, Kolkata's never.
JUMPS = [
    ("Europe/Berlin", date(2025, 3, 30)),
    ("Europe/Berlin", date(2025, 10, 26)),
    ("America/New_York", date(2025, 3, 9)),
    ("America/New_York", date(2025, 11, 2)),
    ("Australia/Lord_Howe", date(2025, 4, 6)),
    ("Australia/Lord_Howe", date(2025, 10, 5)),
    ("America/Santiago", date(2025, 4, 6)),
    ("America/Santiago", date(2025, 9, 7)),
    ("Asia/Kolkata", date(2025, 3, 30)),
]
ZONES = sorted({zone for zone, _ in JUMPS})

minutes = st.sampled_from(["*", "0", "30", "59", "*/7", "*/15", "5,35", "10-20", "0,30"])
hours = st.sampled_from(["*", "*/2", "0-23", "0", "1", "2", "3", "1-3", "0,23", "2,14", "1-5/2"])
days = st.sampled_from(["*", "*", "*", "1-15", "6,26", "*/2", "30"])
months = st.sampled_from(["*", "*", "3,4,10,11", "1-12"])
weekdays = st.sampled_from(["*", "*", "*", "0", "7", "1-5", "6,0"])
expressions = st.tuples(minutes, hours, days, months, weekdays).map(" ".join)
instants = st.datetimes(datetime(2015, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (hypothesis adds the zone)


@cache
def numbers(field: str, low: int, high: int) -> set[int]:
    """Read one field, by rules of its own rather than the library's."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def matches(expression: str, wall: datetime) -> bool:
    """Say whether *wall* fits the expression, minute by minute."""
    minute, hour, day, month, weekday = expression.split()
    fits_day = wall.day in numbers(day, 1, 31)
    fits_weekday = wall.isoweekday() % 7 in {number % 7 for number in numbers(weekday, 0, 7)}
    both = day.startswith("*") or weekday.startswith("*")
    return (
        wall.minute in numbers(minute, 0, 59)
        and wall.hour in numbers(hour, 0, 23)
        and wall.month in numbers(month, 1, 12)
        and ((fits_day and fits_weekday) if both else (fits_day or fits_weekday))
    )


@cache
def real_minutes(zone: str, day: date) -> tuple[tuple[datetime, datetime], ...]:
    """List every real minute for two days around *day*, with the wall clock it shows."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - 2 * DAY
    steps = (start + step * MINUTE for step in range(4 * 24 * 60))
    return tuple((real, real.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for real in steps)


def by_brute_force(expression: str, zone: str, day: date) -> set[datetime]:
    """Find the ticks by looking at every minute, without asking for folds or offsets."""
    shown = real_minutes(zone, day)
    if numbers(expression.split()[1], 0, 23) == set(range(24)):
        return {real for real, wall in shown if matches(expression, wall)}
    firsts: dict[datetime, datetime] = {}
    for real, wall in shown:
        firsts.setdefault(wall, real)
    ticks = set()
    wall = shown[0][1]
    while wall <= shown[-1][1]:
        if matches(expression, wall):
            # A wall time that no minute shows is in a gap: the first minute past it stands in.
            late = wall
            while late not in firsts:
                late += MINUTE
            ticks.add(firsts[late])
        wall += MINUTE
    return ticks


@settings(max_examples=250, deadline=None)
@given(expression=expressions, jump=st.sampled_from(JUMPS))
def test_ticks_around_a_clock_jump_agree_with_a_look_at_every_minute(
    expression: str, jump: tuple[str, date]
) -> None:
    """Nothing is lost, doubled or invented within a day of a jump, in any zone."""
    zone, day = jump
    shown = real_minutes(zone, day)
    start, end = shown[0][0] + DAY, shown[-1][0] - DAY
    expected = sorted(tick for tick in by_brute_force(expression, zone, day) if start < tick <= end)
    assert list(Cron(expression, zone).between(start, end)) == expected


@settings(max_examples=200, deadline=None)
@given(expression=expressions, zone=st.sampled_from(ZONES), instant=instants)
def test_next_tick_is_strictly_later_and_the_first(expression: str, zone: str, instant: datetime) -> None:
    """The next tick lies after the instant, and no tick lies between."""
    cron = Cron(expression, zone)
    tick = cron.next_after(instant)
    assert tick > instant
    assert tick.tzinfo is UTC
    assert cron.next_after(tick - timedelta.resolution) == tick
    assert cron.between(instant, tick) == (tick,)


@settings(max_examples=200, deadline=None)
@given(expression=expressions, zone=st.sampled_from(ZONES), earlier=instants, later=instants)
def test_later_instants_never_have_earlier_ticks(
    expression: str, zone: str, earlier: datetime, later: datetime
) -> None:
    """The next tick is monotone in the instant."""
    earlier, later = sorted((earlier, later))
    cron = Cron(expression, zone)
    assert cron.next_after(earlier) <= cron.next_after(later)


@settings(max_examples=100, deadline=None)
@given(expression=expressions, jump=st.sampled_from(JUMPS), cut=st.integers(1, 2 * 24 * 3600 - 1))
def test_two_looks_see_the_same_ticks_as_one(expression: str, jump: tuple[str, date], cut: int) -> None:
    """A span cut anywhere, inside a gap or a repeated hour too, loses and doubles nothing."""
    zone, day = jump
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - DAY
    middle, end = start + timedelta(seconds=cut), start + 2 * DAY
    cron = Cron(expression, zone)
    assert cron.between(start, middle) + cron.between(middle, end) == cron.between(start, end)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00+00:00", "2025-03-30T01:00+00:00"),
        ("0,30 2,3 * * *", "Europe/Berlin", "2025-03-30T01:00+00:00", "2025-03-30T01:30+00:00"),
        ("*/10 2 * * *", "Europe/Berlin", "2025-03-30T01:00+00:00", "2025-03-31T00:00+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00+00:00", "2025-10-26T00:30+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2025-10-26T00:30+00:00", "2025-10-27T01:30+00:00"),
        ("0 * * * *", "Europe/Berlin", "2025-03-30T00:00+00:00", "2025-03-30T01:00+00:00"),
        ("0 * * * *", "Europe/Berlin", "2025-10-26T00:00+00:00", "2025-10-26T01:00+00:00"),
        ("0 0-23 * * *", "Europe/Berlin", "2025-10-26T00:00+00:00", "2025-10-26T01:00+00:00"),
        ("* * * * *", "America/New_York", "2025-11-02T05:59+00:00", "2025-11-02T06:00+00:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00+00:00", "2025-10-04T15:30+00:00"),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T14:45+00:00", "2025-04-06T15:15+00:00"),
        ("30 * * * *", "Australia/Lord_Howe", "2025-04-05T14:30+00:00", "2025-04-05T15:00+00:00"),
        ("35 * * * *", "Australia/Lord_Howe", "2025-04-05T14:50+00:00", "2025-04-05T15:05+00:00"),
        ("0 0 * * *", "America/Santiago", "2025-09-06T12:00+00:00", "2025-09-07T04:00+00:00"),
        ("30 9 * * *", "Asia/Kolkata", "2025-06-01T00:00+00:00", "2025-06-01T04:00+00:00"),
        ("0 0 29 2 *", "UTC", "2025-01-01T00:00+00:00", "2028-02-29T00:00+00:00"),
        ("0 9 * * MON-FRI", "UTC", "2025-06-06T10:00+00:00", "2025-06-09T09:00+00:00"),
        ("0 0 13 * 5", "UTC", "2025-06-01T00:00+00:00", "2025-06-06T00:00+00:00"),
        ("0 0 L * *", "UTC", "2025-02-01T00:00+00:00", "2025-02-28T00:00+00:00"),
        ("0 0 * * 1#2", "UTC", "2025-06-01T00:00+00:00", "2025-06-09T00:00+00:00"),
    ],
)
def test_next_tick_is_where_people_expect_it(expression: str, zone: str, after: str, expected: str) -> None:
    """Skipped times fire after the gap, repeated ones once, and time that passes goes on."""
    tick = Cron(expression, zone).next_after(datetime.fromisoformat(after))
    assert tick == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("@hourly", "2025-05-14T11:00+00:00"),
        ("@daily", "2025-05-15T00:00+00:00"),
        ("@weekly", "2025-05-18T00:00+00:00"),
        ("@monthly", "2025-06-01T00:00+00:00"),
        ("@yearly", "2026-01-01T00:00+00:00"),
        (" @Daily ", "2025-05-15T00:00+00:00"),
    ],
)
def test_alias_stands_for_its_expression(alias: str, expected: str) -> None:
    """Aliases are read in any case, at midnight or the full hour."""
    tick = Cron(alias).next_after(datetime(2025, 5, 14, 10, 20, 30, tzinfo=UTC))
    assert tick == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("61 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* 5-3 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * 32 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * FOO *", "month"),
        ("* * * * 8", "day-of-week"),
        ("* * * * 1#6", "day-of-week"),
    ],
)
def test_bad_field_is_named_with_its_expression(expression: str, field: str) -> None:
    """The error shows the expression, the field's name and its text."""
    with pytest.raises(ScheduleInvalid) as caught:
        Cron(expression)
    assert caught.value.field == field
    message = str(caught.value)
    assert repr(expression) in message
    assert f"the {field} field" in message


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("@reboot", "alias is unknown"),
        ("@", "alias is unknown"),
        ("1," * 2_000 + "1 * * * *", "longer than"),
        ("9" * 150 + " * * * *", "cannot be read"),
    ],
)
def test_bad_shape_is_refused(expression: str, problem: str) -> None:
    """Wrong numbers of fields, unknown aliases and endless texts get an error that says so."""
    with pytest.raises(ScheduleInvalid, match=problem):
        Cron(expression)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2"])
def test_expression_that_never_fires_is_refused(expression: str) -> None:
    """A day that no month has is refused when the schedule is made, not waited for."""
    with pytest.raises(ScheduleInvalid, match="never fires"):
        Cron(expression)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "America", "a\0b", "/etc/localtime"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    """The error names the zone and shows a good one."""
    with pytest.raises(ScheduleInvalid, match="Europe/Berlin"):
        Cron("* * * * *", zone)


@pytest.mark.parametrize("rhythm", [Cron("* * * * *"), Interval(MINUTE)])
def test_instant_without_a_zone_is_refused(rhythm: Cron | Interval) -> None:
    """A naive instant could mean anything, so it is an error."""
    with pytest.raises(ScheduleInvalid, match="aware"):
        rhythm.next_after(datetime(2025, 1, 1))  # noqa: DTZ001 (the mistake under test)


@pytest.mark.parametrize("rhythm", [Cron("0 0 1 1 *", "Europe/Berlin"), Interval(LONGEST_INTERVAL)])
def test_end_of_the_calendar_is_an_error_with_a_name(rhythm: Cron | Interval) -> None:
    """After the last tick of the year 9999 there is none, and the error says so."""
    with pytest.raises(ScheduleInvalid, match="no tick after"):
        rhythm.next_after(datetime(9999, 12, 31, tzinfo=UTC))


@given(
    every=st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
    instant=instants,
    other=instants,
    anchor=instants,
)
def test_interval_ticks_are_whole_multiples_from_the_anchor(
    every: timedelta, instant: datetime, other: datetime, anchor: datetime
) -> None:
    """Wherever a leader starts to look, it finds the same ticks."""
    tick = Interval(every, anchor).next_after(instant)
    assert instant < tick <= instant + every
    assert (tick - anchor) % every == timedelta(0)
    assert (Interval(every).next_after(other) - EPOCH) % every == timedelta(0)


def test_interval_between_two_instants_leaves_out_the_start_and_takes_the_end() -> None:
    """A span that begins on a tick and ends on one holds only the later."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    ticks = Interval(timedelta(minutes=15)).between(start, start + timedelta(minutes=30))
    assert [tick.minute for tick in ticks] == [15, 30]
    assert Interval(DAY).between(start, start + MINUTE) == ()


def test_interval_passes_real_time_across_a_clock_jump() -> None:
    """An instant in a zone whose clock jumps is read as the instant it is."""
    zone = ZoneInfo("Europe/Berlin")
    anchor = datetime(2025, 3, 30, 0, 0, tzinfo=zone)
    tick = Interval(timedelta(hours=4), anchor).next_after(datetime(2025, 3, 30, 4, 30, tzinfo=zone))
    assert tick == datetime(2025, 3, 30, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    "every", [timedelta(0), timedelta(seconds=-5), timedelta(milliseconds=999), timedelta.max]
)
def test_interval_too_short_or_too_long_is_refused(every: timedelta) -> None:
    """An interval lies between a second and ten years."""
    with pytest.raises(ScheduleInvalid, match="from 1 second"):
        Interval(every)
