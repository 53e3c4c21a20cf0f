"""What a job asks of a runner."""

from __future__ import annotations

from enum import StrEnum

import msgspec

# The kind of job that runs a program; nobody but a runner may take it.
COMMAND = "command"


class OnLoss(StrEnum):
    """What follows when a runner is lost with a job that had begun, or the job stalls."""

    RETRY = "retry"
    FAIL = "fail"
    HOLD = "hold"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Which runner may take a job, and what its loss means.

    A runner needs all of *labels*.  With *runner* only the one of that name may take it, for *pin_for*
    seconds if that is given, then others may.  A job without a sign of life for *stall_limit* seconds is
    taken away.
    """

    labels: tuple[str, ...] = ()
    runner: str | None = None
    pin_for: float | None = None
    on_loss: OnLoss = OnLoss.RETRY
    stall_limit: float | None = None
