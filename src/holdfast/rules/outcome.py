"""The decisions that may follow an attempt.

`worker.perform` chooses among them, `workflow.execution` for runs, `rules.reports` for runners and
`engine.outcomes` for engines of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.outcome import Fail, Outcome, PutBack
from holdfast.rules.backoff import Backoff, Random, choose

MAX_ERROR_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of an attempt: *reason* in one line, *error* with all that is known.

    *delay* is in seconds where the handler chose it, None for the backoff.
    """

    reason: str
    error: str
    delay: float | None = None


def after_failure(
    failure: Failure, *, failures: int, max_attempts: int, backoff: Backoff, random: Random
) -> Fail | PutBack:
    """Decide what follows a failed attempt that had *failures* before it."""
    counted = failures + 1
    if counted >= max_attempts:
        reason = f"attempts exhausted ({counted} of {max_attempts}): {failure.reason}"
        return Fail(error=storable(failure.error), reason=storable(reason))
    delay, error = failure.delay, failure.error
    if delay is None:
        delay, error = rest_after(error, failures=failures, backoff=backoff, random=random)
    return PutBack(
        outcome=Outcome.RETRIED,
        delay=delay,
        counts=True,
        reason=storable(failure.reason),
        error=storable(error),
    )


def rest_after(error: str, *, failures: int, backoff: Backoff, random: Random) -> tuple[float, str]:
    """Return for how many seconds a job rests after an *error*, and the error.

    To that a complaint is added where the backoff's own function gave no usable answer.
    """
    choice = choose(backoff, failures + 1, random)
    told = error if choice.complaint is None else f"{error}\n\nbackoff: {choice.complaint}"
    return choice.rest.total_seconds(), told


def last_act(failure: Failure) -> PutBack:
    """Decide that a run whose attempts are used up goes on at once, only to make up for what it did."""
    return PutBack(
        outcome=Outcome.RETRIED,
        delay=0.0,
        counts=True,
        reason=storable(failure.reason),
        error=storable(failure.error),
    )


def exhausted(reason: str, error: str | None, *, failures: int, max_attempts: int) -> Fail:
    """Decide that a run has had its last attempt, and failed for what the one before it failed for."""
    told = f"attempts exhausted ({failures} of {max_attempts}): {reason}"
    return Fail(error=storable(error or told), reason=storable(told), counts=False)


def poisoned(reason: str, error: str) -> Fail:
    """Decide that a job can never succeed."""
    return Fail(error=storable(error), reason=storable(f"poison: {reason}"))


def released(reason: str) -> PutBack:
    """Decide that a job goes back unspent."""
    return PutBack(outcome=Outcome.RELEASED, delay=0.0, counts=False, reason=reason)


def snoozed(seconds: float, reason: str) -> PutBack:
    """Decide that a job rests for so long without counting a failure."""
    return PutBack(outcome=Outcome.SNOOZED, delay=max(0.0, seconds), counts=False, reason=storable(reason))


def storable(text: str) -> str:
    """Return *text* as PostgreSQL can keep it: no NUL, no half surrogates, its middle cut when endless."""
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    if len(clean) <= MAX_ERROR_CHARACTERS:
        return clean
    half = MAX_ERROR_CHARACTERS // 2
    return f"{clean[:half]}\n… {len(clean) - 2 * half} characters left out …\n{clean[-half:]}"
