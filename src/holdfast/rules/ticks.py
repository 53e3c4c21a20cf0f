"""Which ticks of a schedule fire now: the policies for missed ticks and for overlap.

All answers follow from the arguments alone, so two leaders that meet the same schedule at the same
time agree; the store lets only one of them move *next_tick_at* on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.errors import ScheduleInvalid
from holdfast.model.schedule import MissedTicks, Overlap, Schedule
from holdfast.rules.cron import Cron, Interval, Rhythm

# A tick that fires this late still counts as on time.
GRACE = timedelta(seconds=60)
# What a clock repeats that is set back by at most so much fires the first time round.
REPEATED = timedelta(hours=1)
MOST_MISSED = 1_000
PRIORITIES = range(10)
# Past this many, due ticks are no longer counted: a clock that jumped by years must not hold the leader up.
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What one look at a schedule came to.

    *fire* holds the ticks that make a job each, oldest first; *skipped* says how many due ticks make
    none (a lower bound past ten thousand); *next_tick_at* is always later than the *now* of the look.
    """

    fire: tuple[datetime, ...]
    skipped: int
    next_tick_at: datetime


def rhythm_of(schedule: Schedule) -> Rhythm:
    """Return the rule of *schedule*; raise ScheduleInvalid if it has none, two, or a wrong one."""
    match (schedule.cron, schedule.every):
        case (str(cron), None):
            return Cron(cron, schedule.timezone)
        case (None, timedelta() as every):
            return Interval(every)
    subject = f"schedule {schedule.name!r}"
    if schedule.cron is None and schedule.every is not None:
        problem = f"every is {schedule.every!r}: give a timedelta"
    elif schedule.every is None and schedule.cron is not None:
        problem = f"cron is {schedule.cron!r}: give text such as '0 3 * * *'"
    else:
        problem = "set exactly one of cron and every"
    raise ScheduleInvalid(subject, problem)


def check_schedule(schedule: Schedule) -> None:
    """Raise ScheduleInvalid unless *schedule* may be stored."""
    subject = f"schedule {schedule.name!r}"
    if not schedule.name or not schedule.kind:
        raise ScheduleInvalid(subject, "give it a name and a kind")
    if schedule.priority not in PRIORITIES:
        raise ScheduleInvalid(subject, f"priority is {schedule.priority}: give one from 0 to 9")
    # A number with a fraction would be cut off on its way to the database, without a word.
    if type(schedule.max_missed) is not int or not 1 <= schedule.max_missed <= MOST_MISSED:
        problem = f"max_missed is {schedule.max_missed!r}: give a whole number from 1 to {MOST_MISSED}"
        raise ScheduleInvalid(subject, problem)
    if not isinstance(schedule.timezone, str):
        raise ScheduleInvalid(
            subject, f"timezone is {schedule.timezone!r}: give text such as 'Europe/Berlin'"
        )
    rhythm_of(schedule)


def first_tick(schedule: Schedule, *, now: datetime) -> datetime:
    """Return the tick that a new, edited or resumed schedule begins with: the next after *now*."""
    return rhythm_of(schedule).next_after(now)


def has_strayed(schedule: Schedule, *, now: datetime) -> bool:
    """Return whether the stored tick lies beyond the rule's next one: a clock was ahead then."""
    if schedule.next_tick_at is None or schedule.next_tick_at <= now:
        return False
    if schedule.last_tick_at is not None and now < schedule.last_tick_at <= now + REPEATED:
        return False
    return rhythm_of(schedule).next_after(now) < schedule.next_tick_at


def due_ticks(schedule: Schedule, *, now: datetime) -> TickPlan:
    """Return which due ticks of *schedule* fire, under its policy for missed ones.

    A paused schedule fires nothing and misses nothing.  *skip* fires the newest due tick if it is at
    most 60 seconds late, *once* fires the newest, *all* fires up to *max_missed* of the newest.
    """
    rhythm = rhythm_of(schedule)
    if schedule.paused or schedule.next_tick_at is None:
        return TickPlan((), 0, rhythm.next_after(now))
    if schedule.next_tick_at > now:
        strayed = has_strayed(schedule, now=now)
        return TickPlan((), 0, rhythm.next_after(now) if strayed else schedule.next_tick_at)
    limit = schedule.max_missed if schedule.missed is MissedTicks.ALL else 1
    # One step back, for the stored tick is itself due; it does not fire if an edit took it out of the rhythm.
    start = schedule.next_tick_at - timedelta(microseconds=1)
    fire, counted = _newest(rhythm, start=start, end=now, limit=limit)
    if schedule.missed is MissedTicks.SKIP:
        fire = tuple(tick for tick in fire if now - tick <= GRACE)
    return TickPlan(fire, counted - len(fire), rhythm.next_after(now))


def without_overlap(plan: TickPlan, overlap: Overlap, *, former_is_live: bool) -> TickPlan:
    """Return *plan* with the ticks taken out that would overlap.

    Under *skip* nothing fires while the former tick's job is live, and else only the newest tick,
    for the others' jobs would be live together.
    """
    if overlap is Overlap.ALLOW:
        return plan
    fire = () if former_is_live else plan.fire[-1:]
    return replace(plan, fire=fire, skipped=plan.skipped + len(plan.fire) - len(fire))


def _newest(
    rhythm: Rhythm, *, start: datetime, end: datetime, limit: int
) -> tuple[tuple[datetime, ...], int]:
    """Return the *limit* newest ticks after *start* up to *end*, oldest first, and the number of all."""
    found: tuple[datetime, ...] = ()
    counted = 0
    width = timedelta(hours=1)
    # Backwards in widening windows: the newest come first, and a long past costs only as much as is counted.
    while end > start and counted < COUNTED:
        opening = end - width if end - start > width else start
        window = rhythm.between(opening, end)
        counted += len(window)
        found = (*window, *found)[-limit:]
        end, width = opening, width * 2
    return found, counted
