"""The options of an enqueue as keywords."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import EnqueueOptions, check_names
from holdfast.app.options import NOTHING, Options
from holdfast.errors import InputInvalid


def chosen(options: EnqueueOptions) -> Options:
    """Return the keywords of a call as options; raises `OptionInvalid` for a name that is none."""
    check_names(options, EnqueueOptions.__annotations__)
    return Options(**options) if options else NOTHING


def several(requests: Iterable[JobRequest]) -> Iterable[JobRequest]:
    """Return *requests* if there may be several; raises `InputInvalid` for one that stands alone."""
    if isinstance(requests, Iterable):
        return requests
    found = type(requests).__name__
    msg = f"enqueue_many takes a list of requests, not one {found}: write [request], or call enqueue"
    raise InputInvalid(msg)
