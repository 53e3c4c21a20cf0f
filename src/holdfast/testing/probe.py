"""Waits for events instead of sleeping: a subscriber that remembers what it was told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]


class Probe:
    """Give it to `Events`; then ``await probe.wait_for("jobs.staged")`` ends as soon as that has happened.

    It may be told from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: list[tuple[str, Fields]] = []
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def __call__(self, event: str, fields: Fields) -> None:
        with self._lock:
            self._told.append((event, fields))
            waiters = list(self._waiters)
        for loop, waiter in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(waiter.set)

    def seen(self, event: str) -> list[Fields]:
        """Return the fields of every *event* so far."""
        with self._lock:
            return [fields for name, fields in self._told if name == event]

    def forget(self) -> None:
        """Forget everything so far."""
        with self._lock:
            self._told.clear()

    async def wait_for(
        self,
        event: str,
        matches: Callable[[Fields], bool] = lambda _: True,
        *,
        times: int = 1,
        timeout: float = 30.0,
    ) -> Fields:
        """Wait until *event* has happened *times* times with fields that match; answers the last one's."""
        waiter = asyncio.Event()
        entry = (asyncio.get_running_loop(), waiter)
        with self._lock:
            self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    waiter.clear()
                    found = [fields for fields in self.seen(event) if matches(fields)]
                    if len(found) >= times:
                        return found[times - 1]
                    await waiter.wait()
        except TimeoutError:
            happened = ", ".join(sorted({name for name, _ in self._told})) or "nothing"
            msg = f"{event} did not happen {times} times within {timeout:g} s; what happened: {happened}"
            raise AssertionError(msg) from None
        finally:
            with self._lock:
                self._waiters.remove(entry)
