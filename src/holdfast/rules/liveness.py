"""How well a runner is heard: online, late, offline, lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from holdfast.model.worker import RunnerGrade, WorkerState

# How long a program may take to be gone once it is to be killed, in seconds: the machine may be full.
DEATH = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often runners speak and how long they may be silent, in seconds.

    *sync_wait* is how long an answer may be held back, *sync_every* the rest between syncs otherwise.
    An offer stands for *offer_for*; *cancel_grace* lies between SIGINT and SIGKILL, *loss_grace* where a
    runner ends by itself what it has lost.  One that spoke within *remembered* is not written down again.
    """

    sync_every: float = 10.0
    sync_wait: float = 30.0
    late_after: float = 45.0
    offline_after: float = 60.0
    lost_after: float = 120.0
    offer_for: float = 60.0
    cancel_grace: float = 10.0
    loss_grace: float = 10.0
    remembered: float = 2.0

    @classmethod
    def losing_after(cls, seconds: float) -> Self:
        """Return the intervals where a runner is lost after so many seconds of silence.

        Those that have to be shorter than that keep their share of it; none grows beyond its default.
        """
        usual = cls()
        share = min(1.0, seconds / usual.lost_after)
        return cls(
            sync_every=usual.sync_every * share,
            sync_wait=usual.sync_wait * share,
            late_after=usual.late_after * share,
            offline_after=usual.offline_after * share,
            lost_after=seconds,
            offer_for=usual.offer_for * share,
            loss_grace=usual.loss_grace * share,
            remembered=usual.remembered * share,
        )

    @property
    def ttl(self) -> float:
        """How long the lease of a runner lasts, in seconds.

        What the runner has ended by itself by then, and what is gone, another one may begin; and it was heard
        so much later than was written down.
        """
        return self.lost_after + self.loss_grace + self.remembered + DEATH

    @classmethod
    def leasing_for(cls, ttl: float) -> Self:
        """Return the intervals under which leases last *ttl* seconds: the opposite of `ttl`."""
        usual = cls()
        share = (ttl - DEATH) / (usual.ttl - DEATH)
        return cls.losing_after(max(ttl - usual.ttl + usual.lost_after, usual.lost_after * share))


def grade(state: WorkerState, silence: float, intervals: Intervals) -> RunnerGrade:
    """Return how well a runner in *state* is heard that has been silent for so many seconds.

    Only what was written down is lost or has left: silence by itself costs a runner nothing.
    """
    if state is WorkerState.LOST:
        return RunnerGrade.LOST
    if state is WorkerState.OFFLINE or silence >= intervals.offline_after:
        return RunnerGrade.OFFLINE
    return RunnerGrade.LATE if silence >= intervals.late_after else RunnerGrade.ONLINE
