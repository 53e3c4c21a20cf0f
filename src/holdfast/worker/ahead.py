"""How far ahead of its slots a worker claims."""

from __future__ import annotations

import time

from holdfast.worker.slots import Slots

# The buffer holds about this many seconds of work.
AHEAD = 0.1
# Over how many seconds at least the pace is measured.
SPAN = 0.02


class Ahead:
    """Room in the buffer for a tenth of a second of work at the present pace, and for *most* jobs at most.

    The pace falls at once and rises by halves, so that one lucky moment claims nothing that waits long.
    """

    def __init__(self, slots: Slots, most: int) -> None:
        self._slots, self._most = slots, most
        self._pace = 0.0
        self._measured_at, self._done = time.monotonic(), 0
        self.room = 0

    @property
    def low(self) -> int:
        """How many jobs are left in the buffer when it is time to claim again."""
        return self.room // 2

    def measure(self) -> None:
        """See what the slots have done since the last measurement."""
        now = time.monotonic()
        passed = now - self._measured_at
        if passed >= SPAN:
            pace = (self._slots.done - self._done) / passed
            self._pace = pace if pace < self._pace else (self._pace + pace) / 2
            self._measured_at, self._done = now, self._slots.done
            self.room = min(self._most, int(self._pace * AHEAD))
