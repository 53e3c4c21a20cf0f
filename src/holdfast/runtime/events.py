"""Events with fields: whoever does something says so here; wording and counting live in subscribers."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]


class Events:
    """A fan-out of named events to subscribers, in the caller's thread.

    Tests subscribe to wait for facts; production subscribes a log and the metrics.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Add *subscriber* and return a function that removes it again."""
        self._subscribers = (*self._subscribers, subscriber)
        return lambda: self._unsubscribe(subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        at = self._subscribers.index(subscriber)
        self._subscribers = self._subscribers[:at] + self._subscribers[at + 1 :]

    def emit(self, event: str, **fields: Any) -> None:
        """Tell every subscriber of *event*; one that fails hurts neither the others nor who emits."""
        for subscriber in self._subscribers:
            try:
                subscriber(event, fields)
            except Exception:
                # A log that cannot be written must not cost a job or a lease; stderr is told, as by logging.
                _tell(event)


def _tell(event: str) -> None:
    with suppress(OSError, ValueError):
        print(f"a subscriber failed at event {event!r}:", file=sys.stderr)
        traceback.print_exc()
