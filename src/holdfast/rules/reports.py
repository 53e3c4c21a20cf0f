"""What follows when a runner reports the end of an assignment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend, Transition
from holdfast.rules.backoff import Backoff, Random
from holdfast.rules.outcome import Failure, after_failure, released, snoozed, storable


class ReportedOutcome(StrEnum):
    """How an assignment ended, as its runner says."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A report: *result* is JSON text, *retry* False says that the job is not to be taken up again.

    *delay* is in seconds, where the runner chose when the job may be taken up again.
    """

    outcome: ReportedOutcome
    reason: str = ""
    error: str | None = None
    result: str | None = None
    retry: bool = True
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the server knows of the job that a report is about."""

    failures: int
    max_attempts: int
    cancel_requested: bool
    backoff: Backoff


def after_report(end: End, facts: Facts, random: Random) -> Complete | Fail | Stop | PutBack:
    """Decide what follows *end*.

    What was done is done, also after a cancel.  A runner that stops a job unasked has failed at it, unless it
    says that nothing more is wanted of the job: that is its handler's own word.
    """
    match end.outcome:
        case ReportedOutcome.COMPLETED:
            return Complete(end.result)
        case ReportedOutcome.RELEASED if end.delay:
            return snoozed(end.delay, end.reason or "snoozed by its runner")
        case ReportedOutcome.RELEASED:
            return released(storable(end.reason or "handed back by its runner"))
        case ReportedOutcome.CANCELLED if facts.cancel_requested or not end.retry:
            asked = "cancelled on request" if facts.cancel_requested else "cancelled by its runner"
            return Stop(storable(end.reason or asked))
    unasked = "stopped by its runner unasked" if end.outcome is ReportedOutcome.CANCELLED else "failed"
    reason = end.reason or unasked
    failure = Failure(reason, end.error or reason, end.delay)
    if not end.retry:
        return Fail(error=storable(failure.error), reason=storable(reason))
    return after_failure(
        failure,
        failures=facts.failures,
        max_attempts=facts.max_attempts,
        backoff=facts.backoff,
        random=random,
    )


def is_recorded(decision: Transition, outcome: str) -> bool:
    """Read whether *outcome*, as history has it of an attempt, is what *decision* comes to."""
    if isinstance(decision, Suspend):
        return outcome == Outcome.SUSPENDED
    return any(outcome == outcome_of(decision, cancel_requested=wished) for wished in (False, True))


def outcome_of(decision: Complete | Fail | Stop | PutBack, *, cancel_requested: bool) -> Outcome:
    """Return the outcome of the attempt under *decision*; nothing is taken up again after a cancel."""
    match decision:
        case Complete():
            return Outcome.COMPLETED
        case Fail():
            return Outcome.FAILED
        case Stop():
            return Outcome.CANCELLED
        case PutBack():
            return Outcome.CANCELLED if cancel_requested else decision.outcome
