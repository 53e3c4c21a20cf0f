"""The options of steps as keywords."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

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
