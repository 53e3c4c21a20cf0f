"""How well a runner is heard."""

import pytest

from holdfast.model.worker import RunnerGrade, WorkerState
from holdfast.rules.liveness import Intervals, grade

ONLINE, DRAINING = WorkerState.ONLINE, WorkerState.DRAINING


@pytest.mark.parametrize(
    ("state", "silence", "expected"),
    [
        (ONLINE, 0.0, RunnerGrade.ONLINE),
        (ONLINE, 44.9, RunnerGrade.ONLINE),
        (ONLINE, 45.0, RunnerGrade.LATE),
        (DRAINING, 59.9, RunnerGrade.LATE),
        (ONLINE, 60.0, RunnerGrade.OFFLINE),
        (ONLINE, 9999.0, RunnerGrade.OFFLINE),
        (WorkerState.OFFLINE, 0.0, RunnerGrade.OFFLINE),
        (WorkerState.LOST, 0.0, RunnerGrade.LOST),
    ],
)
def test_silence_makes_late_then_offline_but_only_the_leader_makes_lost(
    state: WorkerState, silence: float, expected: RunnerGrade
) -> None:
    """A grade is what people see; nothing is taken from a runner before it was declared lost."""
    assert grade(state, silence, Intervals()) is expected


def test_the_intervals_shrink_with_the_silence_that_loses_a_runner() -> None:
    """A runner speaks often enough not to be lost, however short that is; a longer limit slows nothing."""
    short, long = Intervals.losing_after(12), Intervals.losing_after(600)
    assert (short.sync_every, short.sync_wait, short.offer_for, short.lost_after) == (1.0, 3.0, 6.0, 12)
    assert (short.late_after, short.offline_after, short.cancel_grace) == (4.5, 6.0, 10.0)
    assert (long.sync_wait, long.offline_after, long.lost_after) == (30.0, 60.0, 600)
    assert Intervals.losing_after(120) == Intervals()


@pytest.mark.parametrize("lost_after", [5.0, 10.0, 120.0, 600.0])
def test_a_runner_that_speaks_when_it_should_is_online(lost_after: float) -> None:
    """Between two requests lie what is held back and a rest; the former was perhaps not written down."""
    intervals = Intervals.losing_after(lost_after)
    longest = intervals.remembered + intervals.sync_wait + intervals.sync_every
    assert grade(ONLINE, longest, intervals) is RunnerGrade.ONLINE
    assert intervals.late_after < intervals.offline_after < intervals.lost_after


@pytest.mark.parametrize("lost_after", [5.0, 12.0, 60.0, 119.9, 120.0, 121.0, 600.0])
def test_the_intervals_of_a_runner_are_known_from_its_lease(lost_after: float) -> None:
    """What is stored is how long its lease lasts: whoever reads that grades as the service does."""
    intervals = Intervals.losing_after(lost_after)
    again = Intervals.leasing_for(intervals.ttl)
    assert (again.late_after, again.offline_after, again.lost_after) == pytest.approx(
        (intervals.late_after, intervals.offline_after, lost_after)
    )
    assert intervals.ttl > intervals.lost_after + intervals.loss_grace


@pytest.mark.parametrize("lost_after", [5.0, 120.0, 600.0])
def test_a_program_has_a_second_to_die_before_another_runner_gets_its_job(lost_after: float) -> None:
    """Also where the last word of its runner was not written down: the one before may be as old as can be."""
    intervals = Intervals.losing_after(lost_after)
    killed_at = intervals.remembered + intervals.lost_after + intervals.loss_grace
    assert intervals.ttl - killed_at == pytest.approx(1.0)
