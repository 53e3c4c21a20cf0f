"""Which of its queues a busy worker asks, and in which order: not those that were empty a moment ago.

To ask a queue costs twenty looks into an index.  A worker on fifty queues of which one is full would spend
more on the empty ones than on its jobs, so it passes them over, for half a second at most.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

# How long a queue may be passed over, in seconds.
LONGEST = 0.5


class Rounds:
    """Remembers which queues answered with nothing; times are seconds on a clock that only moves forward."""

    def __init__(self) -> None:
        self._empty: set[str] = set()
        self._began = 0.0

    def asked(self, queues: Sequence[str], now: float, *, every_one: bool = False) -> tuple[str, ...]:
        """Return which of *queues* to ask, in their order."""
        if every_one or now - self._began >= LONGEST:
            self._empty, self._began = set(), now
        return tuple(queue for queue in queues if queue not in self._empty)

    def answered(self, queues: Sequence[str], found: Collection[str], *, full: bool) -> None:
        """Note what *queues* answered: a *full* claim went no further than the last of *found*."""
        asked = 1 + max(map(queues.index, found), default=-1) if full else len(queues)
        self._empty.update(queue for queue in queues[:asked] if queue not in found)


def turned(
    queues: Sequence[str], found: Collection[str] = (), apart: Collection[str] = ()
) -> tuple[str, ...]:
    """Return in which order to ask *queues* next, after a claim that took all it wanted, from *found*.

    They take turns at the front, so that a full one does not starve the others: next is the one behind the
    last that gave something.  Those *apart* have claims of their own, and none of them is passed over.
    """
    last = max(map(queues.index, found), default=0)
    passed = next((nth for nth in range(1, last) if queues[nth] in apart), last + 1)
    return (*queues[passed:], *queues[:passed])
