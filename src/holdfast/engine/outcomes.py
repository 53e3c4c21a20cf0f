"""What an engine says of an attempt that it ends, and what follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.app.answers import kept_text, reason_text, result_text
from holdfast.app.options import checked_text, seconds_from
from holdfast.engine.claims import Claim
from holdfast.errors import OptionInvalid
from holdfast.model import outcome as decisions
from holdfast.model.outcome import Cancel, Retry, Snooze, Transition
from holdfast.rules import outcome as decide
from holdfast.rules.outcome import Failure


@dataclass(frozen=True, slots=True)
class Complete:
    """The run ends as completed, with *result* (JSON data, at most 1 MiB)."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends as failed; *error* has all that is known where *reason* is one line."""

    reason: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The run goes back unspent: the engine is stopping."""

    reason: str = "the engine is stopping"


@dataclass(frozen=True, slots=True)
class Suspend:
    """The run rests without a worker until one of *signals* is sent, or for *delay*, whichever comes first.

    A signal that was sent before and not taken wakes it at once; so does a *delay* that is over.  With
    neither it is available again at once.
    """

    reason: str
    signals: tuple[str, ...] = ()
    delay: timedelta | float | None = None


# `Retry` counts a failure and runs again after the backoff, or fails at max_attempts; `Snooze` counts none.
Outcome = Complete | Fail | Cancel | Retry | Snooze | Release | Suspend


def transition(claim: Claim, outcome: Outcome, random: Callable[[], float]) -> Transition:
    """Return what is to be written; raises `InputInvalid` for a result or an option that cannot be kept."""
    if not isinstance(outcome, Outcome):
        raise OptionInvalid("outcome", outcome, "give one of those in holdfast.engine, such as Complete()")
    if isinstance(outcome, Complete):
        return decisions.Complete(result_text(claim.kind, outcome.result))
    reason = reason_text(outcome)
    match outcome:
        case Fail(error=error):
            return decisions.Fail(error=kept_text("Fail.error", error) if error else reason, reason=reason)
        case Cancel():
            return decisions.Stop(reason)
        case Snooze(delay):
            return decide.snoozed(seconds_from("Snooze.delay", delay), reason)
        case Release():
            return decide.released(reason)
        case Suspend(signals=signals, delay=delay):
            due = None if delay is None else time.monotonic() + seconds_from("Suspend.delay", delay)
            return decisions.Suspend(reason, signals=_names(signals), due=due)
        case Retry(delay):
            chosen = None if delay is None else seconds_from("Retry.delay", delay)
            return _failed(claim, Failure(reason, reason, chosen), random)


def _names(signals: object) -> tuple[str, ...]:
    if isinstance(signals, str) or not isinstance(signals, Iterable):
        raise OptionInvalid("signals", signals, "give a tuple of names: of a text it would be the letters")
    return tuple(checked_text("signals", name, most=200) for name in signals)


def _failed(claim: Claim, failure: Failure, random: Callable[[], float]) -> Transition:
    return decide.after_failure(
        failure,
        failures=claim.failures,
        max_attempts=claim.max_attempts,
        backoff=claim.retry,
        random=random,
    )
