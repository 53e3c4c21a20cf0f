"""What follows from the server's list: a pure decision, tried with every combination."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runners.agent.messages import Assignment, CancelOrder, Fence, Hold
from holdfast.runners.agent.reconcile import reconcile

FENCES = [Fence(job, attempt) for job in range(1, 4) for attempt in (1, 2)]
SETS = st.sets(st.sampled_from(FENCES))


def offer(fence: Fence, *, cancelled: bool = False) -> Hold:
    """An offer of an assignment, which may be cancelled already."""
    facts: dict[str, Any] = {"kind": "command", "queue": "q", "spec_sha256": "", "token": ""}
    assignment = Assignment(job=fence.job_id, attempt=fence.attempt, **facts)
    order = CancelOrder(reason="enough") if cancelled else None
    return Hold(job=fence.job_id, attempt=fence.attempt, state="offered", assignment=assignment, cancel=order)


def hold(fence: Fence, *, cancelled: bool = False) -> Hold:
    """An assignment that the server knows to be here."""
    order = CancelOrder(reason="enough") if cancelled else None
    return Hold(job=fence.job_id, attempt=fence.attempt, state="running", cancel=order)


@given(offered=SETS, wanted=SETS, cancelled=SETS, told=SETS, held=SETS, done=SETS, free=st.integers(-1, 4))
def test_lists_are_reconciled(
    offered: set[Fence],
    wanted: set[Fence],
    cancelled: set[Fence],
    told: set[Fence],
    held: set[Fence],
    done: set[Fence],
    free: int,
) -> None:
    """Offers begin within the room, what was told and is not listed stops, cancels reach all that is here."""
    listed = [offer(one, cancelled=one in cancelled) for one in sorted(offered - wanted)]
    listed += [hold(one, cancelled=one in cancelled) for one in sorted(wanted)]
    orders = reconcile(listed, told=told, held=held, done=done, free=free)
    begun = {one.fence for one in orders.begin}
    possible = (offered - wanted) - held - done
    assert begun <= possible
    assert len(begun) == min(max(0, free), len(possible))
    assert set(orders.stop) == (held & told) - offered - wanted
    known = (offered | wanted) & cancelled
    assert {fence for fence, _ in orders.cancel} == known & (held | begun)


def test_an_assignment_that_came_after_the_question_is_not_stopped() -> None:
    """An answer says nothing about what its question did not list."""
    fence = FENCES[0]
    assert reconcile([], told=set(), held={fence}, done=set(), free=1).stop == ()
    assert reconcile([], told={fence}, held={fence}, done=set(), free=1).stop == (fence,)


def test_what_ended_is_not_begun_again() -> None:
    """An answer that was on its way when the end was reported still lists the offer."""
    assert reconcile([offer(FENCES[0])], told=set(), held=set(), done={FENCES[0]}, free=1).begin == ()
