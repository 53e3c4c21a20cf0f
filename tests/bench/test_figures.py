"""Medians, percentiles, ratios and overlaps are those that a reader would work out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Summary, overlap, paired_ratio, percentile, summary


def test_a_summary_has_the_median_and_both_ends() -> None:
    """Three rounds come to their middle, with what lies around it."""
    assert summary([30.0, 10.0, 20.0]) == Summary(20.0, 10.0, 30.0, 3)
    assert summary([30.0, 10.0, 20.0]).spread == 1.0


def test_nothing_has_no_summary() -> None:
    """A cell without a round is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least one"):
        summary([])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_of_a_hundred_values_are_their_ranks(share: float, expected: int) -> None:
    """Nearest rank: a percentile is always a value that was measured."""
    assert percentile(list(range(100, 0, -1)), share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_leaves_its_share_below_or_at_it(values: list[float], share: float) -> None:
    """At least the share asked for does not exceed the answer, and the answer was measured."""
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.5)])
def test_a_percentile_that_is_not_defined_is_refused(values: list[float], share: float) -> None:
    """Of nothing, of the zeroth and of more than all there is no percentile."""
    with pytest.raises(ValueError, match="not defined"):
        percentile(values, share)


def test_a_ratio_pairs_the_rounds_so_that_a_slow_one_cancels_out() -> None:
    """A machine that was half as fast in one round changes both sides of it, and no ratio."""
    ratio = paired_ratio({0: 30.0, 1: 15.0, 2: 33.0}, {0: 10.0, 1: 5.0, 2: 11.0})
    assert ratio == Summary(3.0, 3.0, 3.0, 3)


def test_rounds_that_one_side_lacks_make_no_ratio() -> None:
    """Only what was measured on both sides counts, and nothing in common is no ratio at all."""
    assert paired_ratio({0: 10.0, 1: 99.0}, {0: 5.0, 2: 1.0}) == Summary(2.0, 2.0, 2.0, 1)
    assert paired_ratio({0: 10.0}, {1: 5.0}) is None
    assert paired_ratio({0: 10.0}, {0: 0.0}) is None


def test_overlap_counts_what_runs_at_once() -> None:
    """Three intervals over one moment are three, however many there are elsewhere."""
    assert overlap([(0, 10), (2, 4), (3, 5), (6, 9)]) == 3


def test_intervals_that_only_meet_do_not_overlap() -> None:
    """A job that begins as another ends does not exceed a limit of one."""
    assert overlap([(0, 5), (5, 9)]) == 1
    assert overlap([]) == 0
