"""What a worker knows of the limits of its queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from holdfast.model.worker import QueueLimits
from holdfast.store.database import Database
from holdfast.store.queues import queue_limits


@dataclass(frozen=True, slots=True)
class Limited:
    """The *queues* that have limits, and of these the *capped*: those with a limit for the fleet.

    The others limit their concurrency keys alone.
    """

    queues: Set[str] = frozenset()
    capped: Set[str] = frozenset()


class Limits:
    """The limits of queues as they were last *known*, read at most *age* seconds ago; None: to be read.

    *changed* is called after each look with the queues that have limits, and with those whose jobs must not
    go on waiting in a buffer: they are paused, or limited more strictly than before.
    """

    def __init__(
        self, database: Database, age: float, changed: Callable[[Limited, Set[str]], object]
    ) -> None:
        self._database, self._age, self._changed = database, age, changed
        self._former: dict[str, QueueLimits] = {}
        self._read_at, self._changes = 0.0, 0
        self.known: Limited | None = None
        self.has_keyed = False

    def forget(self) -> None:
        """Read them again before they are next asked for."""
        self.known = None
        self._changes += 1

    async def read(self, queues: Sequence[str]) -> Limited:
        """Return which of *queues* have limits.

        What was read for others before has to be forgotten first.
        """
        if time.monotonic() - self._read_at > self._age:
            self.forget()
        while self.known is None:
            changes = self._changes
            found = await self._database.run(queue_limits(queues))
            # What was changed while the database answered may not be in it.
            if changes == self._changes:
                self._learn(found)
        return self.known

    def _learn(self, found: list[QueueLimits]) -> None:
        limited = [queue for queue in found if queue.limited and not queue.paused]
        capped = frozenset(queue.name for queue in limited if queue.max_running is not None)
        self.known = Limited(frozenset(queue.name for queue in limited), capped)
        self.has_keyed = self.known.queues > capped
        self._read_at = time.monotonic()
        stricter = {queue.name for queue in found if queue.paused or self._is_stricter(queue)}
        self._former = {queue.name: queue for queue in found}
        self._changed(self.known, stricter)

    def _is_stricter(self, queue: QueueLimits) -> bool:
        former = self._former.get(queue.name, queue)
        if queue.max_running is None or former.max_running is None:
            return queue.max_running != former.max_running or queue.key_limit < former.key_limit
        return queue.max_running < former.max_running or queue.key_limit < former.key_limit
