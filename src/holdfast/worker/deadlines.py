"""When handlers have to end: one timer for all of them, for nearly all end long before."""

from __future__ import annotations

import asyncio


class Deadlines:
    """Ends timeouts that are due.

    A timer for each handler would stay in the loop's heap for its whole timeout, thousands of them where jobs
    are short, and every other timer is sorted past them.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Let *limit*, which has been entered, expire in so many seconds unless it is forgotten before."""
        due = asyncio.get_running_loop().time() + seconds
        self._due[limit] = due
        if self._timer is None or due < self._timer.when():
            self._set(due)

    def renew(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Let *limit* expire in so many seconds from now instead, if it is still watched."""
        if limit in self._due:
            self._due[limit] = asyncio.get_running_loop().time() + seconds

    def forget(self, limit: asyncio.Timeout) -> None:
        """Watch *limit* no longer."""
        self._due.pop(limit, None)

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for limit in [limit for limit, due in self._due.items() if due <= now]:
            del self._due[limit]
            limit.reschedule(now)
        if self._due:
            self._set(min(self._due.values()))
