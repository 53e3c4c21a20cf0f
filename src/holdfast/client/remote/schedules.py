"""Schedules and tokens by way of the service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.app.options import seconds_from
from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.wire.schedules import ScheduleDone, ScheduleOrder, ScheduleRun, ScheduleSummary
from holdfast.client.wire.shape import Because
from holdfast.client.wire.tokens import TokenOrder, TokenPage
from holdfast.model.schedule import Schedule
from holdfast.model.token import NewToken, Role, TokenRecord


class RemoteSchedules:
    """The verbs of `ScheduleOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def find(self) -> Sequence[Schedule]:
        """Return all schedules in order of name, without their arguments."""
        found = await self._connection.get("/schedules", list[ScheduleSummary])
        return [
            Schedule(**msgspec.structs.asdict(one) | {"options": msgspec.json.encode(one.options).decode()})
            for one in found
        ]

    async def pause(self, name: str, reason: str | None = None) -> None:
        """Let a schedule make no jobs."""
        await self._act("pause", name, reason)

    async def resume(self, name: str, reason: str | None = None) -> None:
        """Let a schedule make jobs again, from now on."""
        await self._act("resume", name, reason)

    async def delete(self, name: str, reason: str | None = None) -> None:
        """Forget a schedule."""
        await self._act("delete", name, reason)

    async def run(self, name: str, reason: str | None = None) -> int:
        """Enqueue a job of a schedule now; answers the job's id."""
        order = ScheduleOrder(name=name, reason=reason)
        return (await self._connection.post("/schedules/run", ScheduleRun, order)).job_id

    async def _act(self, verb: str, name: str, reason: str | None) -> None:
        await self._connection.post(
            f"/schedules/{verb}", ScheduleDone, ScheduleOrder(name=name, reason=reason)
        )


class RemoteTokens:
    """The verbs of `TokenOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def create(
        self, name: str, role: Role, *, expires: timedelta | float | None = None, reason: str | None = None
    ) -> NewToken:
        """Make a token that is good for *expires*, or until it is revoked."""
        seconds = None if expires is None else seconds_from("expires", expires)
        order = TokenOrder(name=name, role=role, expires=seconds, reason=reason)
        return await self._connection.post("/tokens", NewToken, order)

    async def find(
        self, *, ended: bool = False, before: int | None = None, limit: int = 50
    ) -> Sequence[TokenRecord]:
        """Return valid tokens with ids below *before*, newest first; with *ended* all that ever were."""
        page = await self._connection.get("/tokens", TokenPage, ended=ended, before=before, limit=limit)
        return page.tokens

    async def revoke(self, token_id: int, reason: str | None = None) -> TokenRecord:
        """End a token at once."""
        return await self._connection.post(f"/tokens/{token_id}/revoke", TokenRecord, Because(reason))
