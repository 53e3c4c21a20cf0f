"""Room under limits that came about here, for somebody else to take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set

from holdfast.store.database import Database
from holdfast.store.jobs import announce_room, announce_room_for_others

# As a rule a worker takes the next job itself; others are told where it has not, after so many seconds.
PATIENCE = 0.1


class Openings:
    """Limited queues in which a permit or key went free, and this worker has not taken all that it may since.

    Nobody else knows of it: other workers may have looked, found the limit full and fallen asleep.  *due* is
    called, and *are_due* is true, when it is time to `tell` them.  Where this worker found nothing for the
    room, only those are told who may have a use for it: they run other kinds, or hold jobs ahead of permits.
    """

    def __init__(self, database: Database, due: Callable[[], None]) -> None:
        self._database, self._due = database, due
        self._noted: dict[str, float] = {}
        self._left = set[str]()
        self.are_due = False
        self.begin(0, ())

    def begin(self, worker_id: int, kinds: tuple[str, ...]) -> None:
        """Look for this worker row from now on, and for these kinds."""
        self._worker_id, self._kinds = worker_id, kinds

    def note(self, queues: Set[str]) -> None:
        """Jobs of these queues have ended."""
        if queues and not (self._noted or self._left):
            asyncio.get_running_loop().call_later(PATIENCE, self._fall_due)
        self._noted |= dict.fromkeys(queues, time.monotonic())

    def looked(self, queue: str, since: float) -> None:
        """All in this queue that might begin here was claimed, as it stood when the clock said *since*."""
        if self._noted.get(queue, since) < since:
            del self._noted[queue]
            self._left.add(queue)

    async def tell(self) -> None:
        """Wake whoever sleeps on these queues."""
        noted, left = self._noted, self._left
        self._noted, self._left, self.are_due = {}, set(), False
        try:
            if noted:
                await self._database.run(announce_room(sorted(noted)))
            if left := left.difference(noted):
                others = announce_room_for_others(sorted(left), self._kinds, self._worker_id)
                await self._database.run(others)
        except BaseException:
            self._noted, self._left, self.are_due = noted | self._noted, left | self._left, True
            raise

    def _fall_due(self) -> None:
        if self._noted or self._left:
            self.are_due = True
            self._due()
