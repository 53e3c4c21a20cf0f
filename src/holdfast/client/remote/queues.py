"""Queues and workers by way of the service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.app.options import seconds_from
from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.wire.queues import KeyLimitOrder, LimitOrder, QueueOrder, ResumeOrder, RetentionOrder
from holdfast.client.wire.shape import Because
from holdfast.client.wire.workers import Draining, Resumed, WorkerStory
from holdfast.model.worker import QueueRecord, WorkerRecord


class RemoteQueues:
    """The verbs of `QueueOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def find(self) -> Sequence[QueueRecord]:
        """Return all queues with their counts as of their *counted_at*."""
        return await self._connection.get("/queues", list[QueueRecord])

    async def pause(self, name: str, reason: str | None = None, *, create: bool = False) -> QueueRecord:
        """Let nobody claim from a queue."""
        return await self._act("pause", QueueOrder(name=name, reason=reason, create=create))

    async def resume(self, name: str, reason: str | None = None) -> QueueRecord:
        """Let workers claim from a queue again."""
        return await self._act("resume", ResumeOrder(name=name, reason=reason))

    async def limit(
        self, name: str, most: int | None, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Let at most *most* jobs of a queue run in the whole fleet; None lifts the limit."""
        return await self._act("limit", LimitOrder(name=name, limit=most, reason=reason, create=create))

    async def key_limit(
        self, name: str, most: int, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Let at most *most* jobs of each concurrency key of a queue run in the whole fleet."""
        order = KeyLimitOrder(name=name, limit=most, reason=reason, create=create)
        return await self._act("key-limit", order)

    async def retention(
        self, name: str, length: timedelta | float | None, reason: str | None = None, *, create: bool = False
    ) -> QueueRecord:
        """Keep the ended jobs of a queue for so long; None for as long as all others."""
        seconds = None if length is None else seconds_from("retention", length)
        order = RetentionOrder(name=name, seconds=seconds, reason=reason, create=create)
        return await self._act("retention", order)

    async def _act(self, verb: str, order: object) -> QueueRecord:
        return await self._connection.post(f"/queues/{verb}", QueueRecord, order)


class RemoteWorkers:
    """The verbs of `WorkerOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def find(self, *, ended: bool = False) -> Sequence[WorkerRecord]:
        """Return the workers that are online or draining; with *ended* the former ones too."""
        return await self._connection.get("/workers", list[WorkerRecord], ended=ended)

    async def show(self, worker_id: int) -> WorkerStory:
        """Return a worker with what it holds and what operators did to it."""
        return await self._connection.get(f"/workers/{worker_id}", WorkerStory)

    async def drain(self, worker_id: int, reason: str | None = None) -> None:
        """Ask a worker to take nothing more and to leave when what it runs has ended; a runner stays."""
        await self._connection.post(f"/workers/{worker_id}/drain", Draining, Because(reason))

    async def resume(self, worker_id: int, reason: str | None = None) -> None:
        """Let a drained runner take jobs again."""
        await self._connection.post(f"/workers/{worker_id}/resume", Resumed, Because(reason))
