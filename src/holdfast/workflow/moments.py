"""The database's time, as an attempt of a run reckons it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class Moments:
    """Goes on from the last time that the database was heard to tell.

    *at* is when that was, by the monotonic clock: a claimed run may have waited in its worker since.
    """

    def __init__(self, heard: datetime, at: float) -> None:
        self._heard, self._at = heard, at

    def set(self, heard: datetime) -> None:
        """Take over the database's time."""
        self._heard, self._at = heard, time.monotonic()

    def now(self) -> datetime:
        """Return the time."""
        return self._heard + timedelta(seconds=time.monotonic() - self._at)
