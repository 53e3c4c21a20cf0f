"""What a run remembers: where a branch ends, and which lie below it."""

from holdfast.model.step import StepKind, StepState
from holdfast.workflow.history import Entry, History


def history(*places: tuple[str, int]) -> History:
    """A history in which these places of these branches are recorded, in this order."""
    found = History("")
    for branch, place in places:
        found.put(branch, place, Entry("pack", StepKind.STEP, StepState.COMPLETED))
    return found


def test_branches_lie_below_one_that_has_nothing_of_its_own() -> None:
    """Also where their names begin alike, and a name is told once."""
    found = history(("main/goods/heavy", 0), ("main/goods/heavy", 1), ("main/goods#2", 0), ("main", 0))
    assert set(found.below("main")) == {"goods", "goods#2"}
    assert set(found.below("main/goods")) == {"heavy"}
    assert not found.below("main/goods#2")
    assert not found.below("main/good")


def test_a_branch_goes_on_up_to_its_last_place() -> None:
    """Whatever the order in which its places were recorded."""
    found = history(("main", 2), ("main", 0))
    assert [found.goes_on("main", place) for place in range(4)] == [True, True, True, False]
    assert not found.goes_on("main/goods", 0)
