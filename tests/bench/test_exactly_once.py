"""A drain that lost, doubled or invented a job has no figure."""

import pytest

from bench.exactly_once import NotExactlyOnce, check_at_most_once, check_exactly_once


def test_every_number_once_over_all_processes_passes() -> None:
    """Who executed what does not matter, nor in which order."""
    check_exactly_once([[3, 1], [], [0, 2]], range(4))


@pytest.mark.parametrize(
    ("executed", "problem"),
    [
        ([[0, 1], [1, 2]], r"1 executed more than once \(1\)"),
        ([[0, 1, 1, 2]], r"1 executed more than once \(1\)"),
        ([[0], [2]], r"1 never executed \(1\)"),
        ([[], []], r"3 never executed \(0, 1, 2\)"),
        ([[0, 1, 2, 7]], r"1 never asked for \(7\)"),
        ([[0, 0, 7]], r"more than once \(0\); 2 never executed \(1, 2\); 1 never asked for \(7\)"),
    ],
)
def test_a_duplicate_a_hole_and_a_stranger_are_told(executed: list[list[int]], problem: str) -> None:
    """The failure says how many, and names some of them."""
    with pytest.raises(NotExactlyOnce, match=problem):
        check_exactly_once(executed, range(3))


def test_a_long_list_of_holes_is_cut() -> None:
    """A drain that lost a hundred thousand jobs does not fill the screen."""
    with pytest.raises(NotExactlyOnce, match=r"100 never executed \(0, 1, 2, 3, 4, …\)"):
        check_exactly_once([[]], range(100))


def test_a_drain_that_was_stopped_early_may_have_holes_but_no_duplicates() -> None:
    """Where a rest stays in the queue, only doubles are wrong."""
    check_at_most_once([[0, 5], [9]])
    with pytest.raises(NotExactlyOnce, match=r"1 executed more than once \(5\)"):
        check_at_most_once([[0, 5], [5]])
