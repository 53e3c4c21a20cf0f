"""The operator by way of the service: what `holdfast --server` acts through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.remote.deliveries import RemoteDeliveries
from holdfast.client.remote.jobs import RemoteJobs
from holdfast.client.remote.queues import RemoteQueues, RemoteWorkers
from holdfast.client.remote.runs import RemoteRuns
from holdfast.client.remote.schedules import RemoteSchedules, RemoteTokens
from holdfast.client.wire.audit import AuditPage, Clock
from holdfast.model.audit import AuditRecord


class RemoteOperator:
    """Has the verbs of `Operator`; who acts is whom the token of *connection* names."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self.jobs = RemoteJobs(connection)
        self.runs = RemoteRuns(connection)
        self.queues = RemoteQueues(connection)
        self.workers = RemoteWorkers(connection)
        self.schedules = RemoteSchedules(connection)
        self.tokens = RemoteTokens(connection)
        self.deliveries = RemoteDeliveries(connection)

    async def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[AuditRecord]:
        """Return what operators did, newest first; *subject* is such as ``job 42`` or ``queue mail``."""
        page = await self._connection.get(
            "/audit", AuditPage, subject=subject, actor=actor, before=before, limit=limit
        )
        return page.acts

    async def now(self) -> datetime:
        """Return the database's time, by which leases and due times are judged."""
        return (await self._connection.get("/clock", Clock)).now
