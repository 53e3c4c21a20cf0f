"""The options of an enqueue as keywords: which there are, and where they may be given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.errors import OptionInvalid
from holdfast.rules.backoff import Backoff


class RunnerWishes(TypedDict, total=False):
    """The options with any of which only runners may take a job; see `holdfast.model.placement.Placement`."""

    labels: Sequence[str]
    runner: str
    pin_for: timedelta | float
    on_loss: str
    stall_limit: timedelta | float


class ChildOptions(RunnerWishes, total=False):
    """What `Run.child` and `Run.enqueue` take beside the request."""

    queue: str
    priority: int
    max_attempts: int
    timeout: timedelta | float
    run_at: datetime
    delay: timedelta | float
    retry: Backoff
    concurrency_key: str
    tags: Sequence[str]
    meta: dict[str, Any]
    trace: str


class EnqueueOptions(ChildOptions, total=False):
    """What `Client.enqueue` takes beside the request; see `holdfast.app.options.Options`."""

    unique_key: str
    unique_policy: str
    parent_id: int


def check_names(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `OptionInvalid` for a name that is none of *known*."""
    for name, value in options.items():
        if name not in known:
            raise OptionInvalid(
                name, value, f"there is no such option here; there are {', '.join(sorted(known))}"
            )
