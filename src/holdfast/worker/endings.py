"""What a handler came to, in the words of the wire, wherever it ran."""

from __future__ import annotations

from typing import Any

from holdfast.app.answers import reason_text, result_text
from holdfast.app.options import seconds_from
from holdfast.errors import InputInvalid, LeaseLost, Poison
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.outcome import storable
from holdfast.rules.telling import one_line, told, untellable
from holdfast.worker import wire
from holdfast.workflow.failures import recorded, recorded_text


def answered(kind: str, returned: Any) -> wire.Ending:
    """Return the ending of a handler that returned."""
    try:
        match returned:
            case Snooze(delay):
                return wire.Snoozed(seconds_from("Snooze.delay", delay), reason_text(returned))
            case Cancel():
                return wire.Cancelled(reason_text(returned))
            case Retry(delay):
                seconds = None if delay is None else seconds_from("Retry.delay", delay)
                return wire.Retried(seconds, reason_text(returned))
        return wire.Returned(result_text(kind, returned))
    except InputInvalid as error:
        # The handler did its work but its answer cannot be kept: trying again would not change that.
        return wire.Raised(str(error), str(error), recorded(error), poison=True)


def raised(error: BaseException, claimed: ClaimedJob) -> wire.Raised:
    """Return the ending of a handler that raised."""
    try:
        return _told(error, claimed)
    except Exception as met:
        # A handler's own error class may fail at whatever it is asked; its attempt ends all the same.
        text = untellable(error, met)
        return wire.Raised(text, text, recorded_text(type(error).__name__, text))


def _told(error: BaseException, claimed: ClaimedJob) -> wire.Raised:
    lost = isinstance(error, LeaseLost) and (error.job_id, error.attempt) == (claimed.id, claimed.attempt)
    return wire.Raised(
        storable(one_line(error)),
        storable(told(error)),
        recorded(error),
        poison=isinstance(error, Poison),
        lost=lost,
    )
