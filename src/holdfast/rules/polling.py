"""Whether a worker sleeps until it is told of jobs, or polls: it keeps watch and looks by itself.

To be told costs whoever enqueues: NOTIFY takes a lock of the whole database until the commit is on disk, so
commits that notify go one after another.  Where jobs trickle in faster than a worker could look, looking is
the cheaper way for both; a worker on watch says that it is awake, and nobody notifies it.
"""

from __future__ import annotations

from collections import deque

# Called so often within so many seconds, a worker begins to watch.
CALLS = 20
WITHIN = 0.1
# How long it goes on although it finds nothing, in seconds: falling asleep and waking up costs two writes.
PATIENCE = 0.5


class Polling:
    """Counts calls and finds; times are seconds on one clock that only moves forward."""

    def __init__(self) -> None:
        self.kept = False
        self._calls: deque[float] = deque(maxlen=CALLS)
        self._found_at = 0.0

    def call(self, now: float) -> None:
        """A notification has come."""
        self._calls.append(now)

    def is_due(self, now: float) -> bool:
        """Whether it has been called so often that the next look begins to watch."""
        return len(self._calls) == CALLS and now - self._calls[0] < WITHIN

    def look(self, now: float, *, found: bool) -> bool:
        """A look has found something or not; answers whether the worker keeps watch from here on."""
        if found:
            self._found_at = now
        if self.kept:
            self.kept = now - self._found_at < PATIENCE
        elif self.is_due(now):
            self.kept, self._found_at = True, now
            self._calls.clear()
        return self.kept
