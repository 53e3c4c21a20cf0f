"""Runs as they travel over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.client.wire.shape import Why
from holdfast.model.run import RunSummary
from holdfast.model.step import MAIN, ActivityRecord, StepRecord

LARGEST_PLACE = 2**31 - 1


class RunPage(msgspec.Struct, frozen=True):
    """Runs, newest first; *next* is *before* of the next page, null on the last one."""

    runs: list[RunSummary]
    next: int | None


class History(msgspec.Struct, frozen=True):
    """What a run has recorded; branch and place of the last step are where the next page begins."""

    steps: list[StepRecord]


class Activities(msgspec.Struct, frozen=True):
    """Lines of the log of step calls; *next* is *after* of the next page, null on the last one."""

    activities: list[ActivityRecord]
    next: int | None


class RunSort(msgspec.Struct, frozen=True):
    """Whether a job is a run; null where no worker has known its kind."""

    is_run: bool | None


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class SignalOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A signal; a second one with the same *key* is the first one."""

    name: Name
    payload: Any = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    reason: Why = None


class Signalled(msgspec.Struct, frozen=True):
    """The signal that was sent."""

    id: int


class ForkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Behind which finished step a fork begins: the last one of that name, or that at *place*."""

    at: Name
    branch: str = MAIN
    place: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PLACE)] | None = None
    reason: Why = None


class Met(msgspec.Struct, frozen=True):
    """The runs that were met: the one that was asked for, and its children that follow it."""

    ids: list[int]
