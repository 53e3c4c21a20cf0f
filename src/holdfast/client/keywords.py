"""The options of an enqueue as keywords."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.app.handler import JobRequest
from holdfast.app.options import NOTHING, Options
from holdfast.errors import InputInvalid, OptionInvalid
from holdfast.rules.backoff import Backoff


class EnqueueOptions(TypedDict, total=False):
    """What `Client.enqueue` takes beside the request; see `holdfast.app.options.Options`."""

    queue: str
    priority: int
    max_attempts: int
    timeout: timedelta | float
    run_at: datetime
    delay: timedelta | float
    retry: Backoff
    unique_key: str
    unique_policy: str
    concurrency_key: str
    tags: Sequence[str]
    meta: dict[str, Any]
    parent_id: int
    trace: str
    labels: Sequence[str]
    runner: str
    pin_for: timedelta | float
    on_loss: str
    stall_limit: timedelta | float


def chosen(options: EnqueueOptions) -> Options:
    """Return the keywords of a call as options; raises `OptionInvalid` for a name that is none."""
    for name, value in options.items():
        if name not in EnqueueOptions.__annotations__:
            known = ", ".join(EnqueueOptions.__annotations__)
            raise OptionInvalid(name, value, f"there is no such option; there are {known}")
    return Options(**options) if options else NOTHING


def several(requests: Iterable[JobRequest]) -> Iterable[JobRequest]:
    """Return *requests* if there may be several; raises `InputInvalid` for one that stands alone."""
    if isinstance(requests, Iterable):
        return requests
    found = type(requests).__name__
    msg = f"enqueue_many takes a list of requests, not one {found}: write [request], or call enqueue"
    raise InputInvalid(msg)
