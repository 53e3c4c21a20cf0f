"""Keeps the log of a long outage short: the first failure is told at once, then one in a while."""

from __future__ import annotations

import time
from collections.abc import Callable

# How often an outage that lasts is told, in seconds.
INTERVAL = 30.0


class Outage:
    """Counts failures until `ended` and says which of them to tell."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._told_at = 0.0

    def failed(self) -> int | None:
        """Count a failure; answers how many there were if it is to be told, else None."""
        self._count += 1
        now = self._clock()
        if self._count > 1 and now - self._told_at < INTERVAL:
            return None
        self._told_at = now
        return self._count

    def ended(self) -> None:
        """Forget the failures: the next one begins another outage."""
        self._count = 0
