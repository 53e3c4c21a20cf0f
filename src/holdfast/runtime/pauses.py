"""How long to wait between tries of our own."""

from __future__ import annotations

from collections.abc import Iterator

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0


def doubling(first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> Iterator[float]:
    """Yield pauses in seconds: the *first*, then each twice as long as the one before, at most *longest*."""
    pause = first
    while True:
        yield pause
        pause = min(longest, pause * 2)
