"""The settings of the leader's duties, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import OptionInvalid

DAY = 86_400.0
HOUR = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """How the duties are done; all times in seconds.

    *leader_ttl* is how long a leader that stopped renewing still counts as one.  *retention_completed*
    and *retention_failed* (which holds for cancelled jobs too) are how long ended jobs are kept,
    *retention_logs* how long log lines are kept at most: they never outlive their job.  *unknown_grace* is
    how long a job may wait in an attended queue for a worker that knows its kind, *offer_for* how long an
    offer to a runner stands.  *count_rest* is the shortest rest between two counts of all jobs, *prune_rest*
    the one between two prunes, and *prune_batch* how many jobs one statement deletes.
    """

    leader_ttl: float = 4.0
    retention_completed: float = 14 * DAY
    retention_failed: float = 30 * DAY
    retention_logs: float = 30 * DAY
    unknown_grace: float = HOUR
    offer_for: float = 60.0
    count_rest: float = 5.0
    prune_rest: float = 300.0
    prune_batch: int = 1000

    def __post_init__(self) -> None:
        least = {
            "leader_ttl": 0.5,
            "retention_completed": DAY,
            "retention_failed": DAY,
            "retention_logs": DAY,
            "unknown_grace": 0.0,
            "offer_for": 0.05,
            "count_rest": 0.05,
            "prune_rest": 0.05,
        }
        for option, seconds in least.items():
            if not getattr(self, option) >= seconds:
                raise OptionInvalid(option, getattr(self, option), f"give at least {seconds:g} seconds")
        if not 1 <= self.prune_batch <= 10_000:
            raise OptionInvalid("prune_batch", self.prune_batch, "give a whole number from 1 to 10000")
