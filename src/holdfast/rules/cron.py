"""When a schedule's ticks are: cron expressions in a time zone, and plain intervals.

Clocks jump, so an expression means one of two things:

* One that names its hours (``30 2 * * *``, ``*/10 8-18 * * *``) speaks of the clock on the wall.
  Each time it names fires exactly once a day: a time that the clock skips fires as soon as the
  clock is past the gap (several such times together: once), a time that the clock repeats fires
  the first time round.
* One whose hours are all 24 (``0 * * * *``, ``*/5 * * * *``) speaks of time that passes.  It fires
  at every real minute whose wall clock fits, so that it goes on every hour or minute while the
  clock jumps.

As in Debian's cron, a day must fit day-of-month *and* day-of-week if one of the two fields begins with ``*``,
else either of them is enough.  Instants go in with any time zone and come out in UTC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from holdfast.errors import ScheduleInvalid

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
# In the order of the expression: the field's name and what may stand in it.
FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day-of-month", "1-31, L or LW"),
    ("month", "1-12 or JAN-DEC"),
    ("day-of-week", "0-7, SUN-SAT, 1#2 or 5L"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_EXPRESSION = 200
SHORTEST_INTERVAL = timedelta(seconds=1)
LONGEST_INTERVAL = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class Cron:
    """The ticks of a cron expression with five fields, or an alias such as ``@daily``, in a time zone.

    Raises ScheduleInvalid, naming expression and field, for an expression that cannot be read or never fires.
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        _check(self.expression)
        zone_named(self.timezone)

    def next_after(self, instant: datetime) -> datetime:
        """Return the first tick strictly after *instant*, in UTC."""
        for tick in self._ticks_after(_in_utc(instant)):
            return tick
        raise ScheduleInvalid(_named(self.expression), f"it has no tick after {instant.isoformat()}")

    def between(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return all ticks after *start* up to and including *end*, oldest first, in UTC."""
        last = _in_utc(end)
        return tuple(takewhile(lambda tick: tick <= last, self._ticks_after(_in_utc(start))))

    def _ticks_after(self, instant: datetime) -> Iterator[datetime]:
        zone = zone_named(self.timezone)
        latest = instant
        try:
            for tick in _ticks_from(self.expression, instant.astimezone(zone), zone):
                # Skipped times meet at the end of the gap, repeated ones lie behind: neither may fire again.
                if tick > latest:
                    yield tick
                    latest = tick
        except (OverflowError, ValueError):
            # The calendar ends with the year 9999, and so do the ticks.
            return


@dataclass(frozen=True, slots=True)
class Interval:
    """A tick at every whole multiple of *every* from *anchor*, so that all leaders agree on them."""

    every: timedelta
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        if not SHORTEST_INTERVAL <= self.every <= LONGEST_INTERVAL:
            problem = f"give a time from 1 second to {LONGEST_INTERVAL.days} days"
            raise ScheduleInvalid(self._name, problem)
        _in_utc(self.anchor)

    @property
    def _name(self) -> str:
        return f"every {self.every}"

    def next_after(self, instant: datetime) -> datetime:
        """Return the first tick strictly after *instant*, in UTC."""
        anchor = _in_utc(self.anchor)
        steps = (_in_utc(instant) - anchor) // self.every + 1
        try:
            return anchor + steps * self.every
        except OverflowError:
            problem = f"it has no tick after {instant.isoformat()}"
            raise ScheduleInvalid(self._name, problem) from None

    def between(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return all ticks after *start* up to and including *end*, oldest first, in UTC."""
        first = self.next_after(start)
        count = (_in_utc(end) - first) // self.every + 1
        return tuple(first + step * self.every for step in range(count))


Rhythm = Cron | Interval


def zone_named(name: str) -> ZoneInfo:
    """Return the time zone of that IANA name; raise ScheduleInvalid if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = f"time zone {name!r}"
        raise ScheduleInvalid(zone, "it is unknown: use a name such as 'Europe/Berlin' or 'UTC'") from None


def _ticks_from(expression: str, start: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the ticks from about *start* on, oldest first; some may lie before it or come twice."""
    # cronsim sees bare wall times only: with a zone it jumps over ticks where clocks go back by half an hour.
    walls = CronSim(_spelled_out(expression), start.replace(tzinfo=None) - _repeat_ahead(start))
    if walls.hours == set(range(24)):
        return _by_time_that_passes(walls, zone)
    return (_past_gap(wall, zone) for wall in walls)


def _repeat_ahead(local: datetime) -> timedelta:
    """Return how far the clock will go back if *local* is the first of two instants it shows, else zero."""
    again = local.replace(fold=1).utcoffset()
    now = local.utcoffset()
    return now - again if now is not None and again is not None else timedelta(0)


def _by_time_that_passes(walls: Iterator[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Yield every instant that shows one of *walls*: none in a gap, two where the clock repeats."""
    repeats: deque[datetime] = deque()
    for wall in walls:
        first, second = _instant_of(wall, zone), _instant_of(wall.replace(fold=1), zone)
        while repeats and repeats[0] < first:
            yield repeats.popleft()
        if _shows(first, wall, zone):
            yield first
            if second != first:
                repeats.append(second)


def _past_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant that shows *wall*, or the end of the gap it lies in."""
    while not _shows(instant := _instant_of(wall, zone), wall, zone):
        wall += timedelta(minutes=1)
    return instant


def _instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _shows(instant: datetime, wall: datetime, zone: ZoneInfo) -> bool:
    return instant.astimezone(zone).replace(tzinfo=None) == wall


def _in_utc(instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        naive = f"instant {instant.isoformat()}"
        raise ScheduleInvalid(naive, "it has no time zone: pass an aware datetime")
    return instant.astimezone(UTC)


def _named(expression: str) -> str:
    return f"cron expression {expression[:LONGEST_EXPRESSION]!r}"


def _spelled_out(expression: str) -> str:
    return ALIASES.get(expression.strip().lower(), expression)


def _check(expression: str) -> None:
    """Raise ScheduleInvalid unless *expression* can be read and fires some day."""
    if len(expression) > LONGEST_EXPRESSION:
        raise ScheduleInvalid(_named(expression), f"it is longer than {LONGEST_EXPRESSION} characters")
    parts = _spelled_out(expression).split()
    if expression.strip().startswith("@") and len(parts) != len(FIELDS):
        raise ScheduleInvalid(_named(expression), f"the alias is unknown: use one of {', '.join(ALIASES)}")
    if len(parts) != len(FIELDS):
        names = ", ".join(name for name, _ in FIELDS)
        raise ScheduleInvalid(_named(expression), f"it has {len(parts)} fields: write five: {names}")
    for place, part in enumerate(parts):
        _check_field(expression, place, part)
    if not _fires(" ".join(parts)):
        raise ScheduleInvalid(
            _named(expression), "it never fires: no month in it has such a day", field="day-of-month"
        )


def _check_field(expression: str, place: int, part: str) -> None:
    # Alone among stars, a field can only fail for itself.
    alone = ["*"] * len(FIELDS)
    alone[place] = part
    try:
        CronSim(" ".join(alone), EPOCH)
    except CronSimError:
        name, allowed = FIELDS[place]
        problem = f"the {name} field {part!r} cannot be read: use {allowed}, *, lists, ranges and steps"
        raise ScheduleInvalid(_named(expression), problem, field=name) from None


def _fires(expression: str) -> bool:
    # Every date meets every weekday within cronsim's 50 years, so the start does not matter.
    try:
        return next(CronSim(expression, EPOCH), None) is not None
    except CronSimError:
        return False
