"""What an operator sees of queues and does to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.app.options import checked_text, seconds_from
from holdfast.errors import OptionInvalid, QueueNotFound
from holdfast.model.audit import Mandate
from holdfast.model.worker import QueueRecord
from holdfast.store import queues
from holdfast.store.database import Database
from holdfast.store.queues import QueueChange

LARGEST_LIMIT = 1_000_000
SHORTEST_RETENTION = 60.0


class QueueOperator:
    """Lists queues, pauses and limits them, sets their retention.

    Workers hear of a change at once; what runs already goes on.
    Each change answers the queue as it is then.  It raises `QueueNotFound` for a name that no worker and no
    job uses, unless *create* says that it is meant.
    """

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def find(self) -> Sequence[QueueRecord]:
        """Return all queues with their counts as of their *counted_at*."""
        return await self._database.run(queues.list_queues())

    async def pause(self, name: str, reason: str | None = None, *, create: bool = False) -> QueueRecord:
        """Let nobody claim from a queue."""
        return await self._change(
            name, QueueChange(action="queue.pause", paused=True, creates=create), reason
        )

    async def resume(self, name: str, reason: str | None = None) -> QueueRecord:
        """Let workers claim from a queue again."""
        return await self._change(name, QueueChange(action="queue.resume", paused=False), reason)

    async def limit(
        self, name: str, most: int | None, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Let at most *most* jobs of a queue run in the whole fleet; None lifts the limit."""
        if most is not None and not 0 <= most <= LARGEST_LIMIT:
            raise OptionInvalid("limit", most, f"give a whole number from 0 to {LARGEST_LIMIT}, or none")
        change = QueueChange(action="queue.limit", sets_limit=True, max_running=most, creates=create)
        return await self._change(name, change, reason)

    async def key_limit(
        self, name: str, most: int, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Let at most *most* jobs of each concurrency key of a queue run in the whole fleet."""
        if not 1 <= most <= LARGEST_LIMIT:
            raise OptionInvalid("key limit", most, f"give a whole number from 1 to {LARGEST_LIMIT}")
        change = QueueChange(action="queue.key_limit", key_limit=most, creates=create)
        return await self._change(name, change, reason)

    async def retention(
        self, name: str, length: timedelta | float | None, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Keep the ended jobs of a queue for so long, a timedelta or seconds; None for as long as all others.

        It counts where it is shorter than what holds for all queues.  Raises `OptionInvalid` under a minute.
        """
        seconds = None if length is None else seconds_from("retention", length, least=SHORTEST_RETENTION)
        change = QueueChange(action="queue.retention", sets_retention=True, retention=seconds, creates=create)
        return await self._change(name, change, reason)

    async def _change(self, name: str, change: QueueChange, reason: str | None) -> QueueRecord:
        if change.creates:
            # No job may name another sort of queue, so nobody would ever use it.
            checked_text("queue", name, most=100)
        record = await self._database.run(queues.change_queue(name, change, Mandate(self._actor, reason)))
        if record is None:
            raise QueueNotFound(name)
        return record
