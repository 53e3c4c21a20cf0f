"""What the server has, as runners are told it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import AssignmentStale, HoldfastError
from holdfast.model.job import JobState
from holdfast.model.problem import problem_type
from holdfast.model.runner import Held
from holdfast.rules.liveness import Intervals
from holdfast.runners.dispatcher import Offer
from holdfast.runners.messages import (
    LONGEST_INLINE_SPEC,
    AssignmentTold,
    CancelOrder,
    Hold,
    IntervalsTold,
    Refusal,
    TruthTold,
)
from holdfast.store.attempts import Fence


def told_intervals(intervals: Intervals) -> IntervalsTold:
    """Tell a runner how often to speak."""
    return IntervalsTold(
        intervals.sync_every,
        intervals.sync_wait,
        intervals.late_after,
        intervals.offline_after,
        intervals.lost_after,
        intervals.offer_for,
        intervals.cancel_grace,
        intervals.loss_grace,
    )


def told_offer(offer: Offer, grace: float) -> AssignmentTold:
    """Tell a runner what it is offered."""
    one = offer.assignment
    return AssignmentTold(
        job=one.job_id,
        attempt=one.attempt,
        kind=one.kind,
        queue=one.queue,
        priority=one.priority,
        timeout=one.timeout,
        failures=one.failures,
        max_attempts=one.max_attempts,
        retry=None if one.retry is None else msgspec.json.decode(one.retry),
        tags=one.tags,
        meta=msgspec.json.decode(one.meta),
        trace=one.trace,
        enqueued_at=one.enqueued_at,
        offered_at=one.offered_at,
        grace=grace,
        on_loss=one.on_loss,
        spec_sha256=one.spec_sha256,
        spec=one.spec if len(one.spec) <= LONGEST_INLINE_SPEC else None,
        token=offer.token,
    )


def told_cancel(requested_at: datetime | None, reason: str | None, grace: float) -> CancelOrder | None:
    """Tell a runner that an assignment is to end, if it is, and for what reason."""
    if requested_at is None:
        return None
    return CancelOrder("requested", reason or "a cancel was requested", requested_at, grace)


def told_hold(held: Held, grace: float) -> Hold:
    """Tell a runner that it holds an assignment."""
    running = held.state is JobState.RUNNING
    return Hold(
        job=held.job_id,
        attempt=held.attempt,
        state="running" if running else "accepted" if held.accepted else "offered",
        cancel=told_cancel(held.cancel_requested_at, held.cancel_reason, grace),
    )


def told_refusal(fence: Fence, error: HoldfastError) -> Refusal:
    """Tell a runner why something about an assignment was not accepted."""
    truth = None
    if isinstance(error, AssignmentStale):
        truth = TruthTold(error.state, error.now, error.runner, error.outcome)
    return Refusal(fence.job_id, fence.attempt, problem_type(type(error)), str(error), truth)
