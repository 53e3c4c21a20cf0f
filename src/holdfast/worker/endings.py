"""What a handler came to, as its process says it over the wire."""

from __future__ import annotations

from typing import Any

from holdfast.app.answers import result_text
from holdfast.app.options import seconds_from
from holdfast.errors import InputInvalid, LeaseLost, Poison
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.outcome import storable
from holdfast.rules.telling import one_line, told
from holdfast.worker import wire


def answered(kind: str, returned: Any) -> wire.Ending:
    """Return the ending of a handler that returned."""
    try:
        match returned:
            case Snooze(delay, reason):
                return wire.Snoozed(seconds_from("Snooze.delay", delay), storable(reason))
            case Cancel(reason):
                return wire.Cancelled(storable(reason))
            case Retry(delay, reason):
                seconds = None if delay is None else seconds_from("Retry.delay", delay)
                return wire.Retried(seconds, storable(reason))
        return wire.Returned(result_text(kind, returned))
    except InputInvalid as error:
        # The handler did its work but its answer cannot be kept: trying again would not change that.
        return wire.Raised(str(error), str(error), poison=True)


def raised(error: BaseException, claimed: ClaimedJob) -> wire.Raised:
    """Return the ending of a handler that raised."""
    lost = isinstance(error, LeaseLost) and (error.job_id, error.attempt) == (claimed.id, claimed.attempt)
    return wire.Raised(
        storable(one_line(error)), storable(told(error)), poison=isinstance(error, Poison), lost=lost
    )
