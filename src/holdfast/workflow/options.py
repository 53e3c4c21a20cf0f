"""The options of steps and children as keywords."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.app.options import RunnerWishes
from holdfast.rules.backoff import Backoff


class StepKeywords(TypedDict, total=False):
    """What `Run.step` takes beside the function and its arguments."""

    name: str
    kwargs: dict[str, Any]
    max_attempts: int
    retry: Backoff
    timeout: timedelta | float
    executor: str
    transaction: bool


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
