"""When a run may rest: decided without looking at thousands of branches again and again."""

from __future__ import annotations

from holdfast.workflow.branch import Branch, Wait
from holdfast.workflow.rest import busy, idle_waits


def test_a_branch_that_is_busy_is_looked_for_from_the_youngest() -> None:
    """They come to rest in the order in which they were begun: from the other side each would meet many."""
    branches = {name: Branch(name) for name in ("main", "main/a", "main/b", "main/c")}
    branches["main/a"].wait = Wait("a signal")
    assert [branch.name for branch in busy(branches)] == ["main/c", "main/b", "main"]
    assert idle_waits(branches) == []


def test_a_run_whose_branches_all_wait_rests_for_what_comes_from_outside() -> None:
    """A branch that waits for branches of its own run is no reason to be woken."""
    branches = {name: Branch(name) for name in ("main", "main/a")}
    branches["main"].wait, branches["main/a"].wait = Wait("its branches", joins=True), Wait("a signal")
    assert [wait.reason for wait in idle_waits(branches)] == ["a signal"]
