"""How fast the jobs of limited queues end, and so how many may be claimed ahead of permits."""

from __future__ import annotations

import time
from collections.abc import Iterable

# A worker claims about this many seconds of work ahead.
AHEAD = 0.1
# Over how many seconds at least a pace is measured.
SPAN = 0.02


class Turnover:
    """How many jobs of each queue with a limit for the fleet end here in a tenth of a second.

    Each end lets go of a permit or hands it on, so that many may be claimed ahead of their permits.
    *watched* are these queues, each with what was counted since its pace was last asked for.
    """

    def __init__(self) -> None:
        self.watched: dict[str, int] = {}
        self._pace: dict[str, float] = {}
        self._noted_at: dict[str, float] = {}

    def watch(self, queues: Iterable[str]) -> None:
        """Count in these queues from now on, and in no others."""
        self.watched = {queue: self.watched.get(queue, 0) for queue in queues}

    def count(self, queue: str) -> None:
        """Count an end after which another job of the queue could begin at once."""
        self.watched[queue] += 1

    def room(self, queue: str) -> int:
        """Return how many jobs of *queue* are a tenth of a second's work, at its pace since the last call."""
        now = time.monotonic()
        passed = now - self._noted_at.setdefault(queue, now)
        if passed >= SPAN:
            self._pace[queue] = self.watched[queue] / passed
            self.watched[queue], self._noted_at[queue] = 0, now
        return int(self._pace.get(queue, 0.0) * AHEAD)
