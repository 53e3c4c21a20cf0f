"""What operators do, in whose name, and the log of it: the one door for the command line and the web."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.client.delivery_operator import DeliveryOperator
from holdfast.client.job_operator import JobOperator
from holdfast.client.queue_operator import QueueOperator
from holdfast.client.run_operator import RunOperator
from holdfast.client.schedule_operator import ScheduleOperator
from holdfast.client.token_operator import TokenOperator
from holdfast.client.worker_operator import WorkerOperator
from holdfast.model.audit import AuditRecord
from holdfast.store import audit, overview, schedules
from holdfast.store.database import Database


class Operator:
    """Acts in the name of *actor*; every change and its line in the audit log are one transaction."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self.actor = database, actor
        self.jobs = JobOperator(database, actor)
        self.runs = RunOperator(database, actor)
        self.queues = QueueOperator(database, actor)
        self.workers = WorkerOperator(database, actor)
        self.schedules = ScheduleOperator(database, actor)
        self.tokens = TokenOperator(database, actor)
        self.deliveries = DeliveryOperator(database, actor)

    async def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[AuditRecord]:
        """Return what operators did, newest first; *subject* is such as ``job 42`` or ``queue mail``."""
        statement = audit.list_audit(subject=subject, actor=actor, before=before, limit=limit)
        async with self._database.transaction() as connection:
            await self._database.run(overview.plan_freely(overview.LISTING_TIMEOUT), connection)
            return await self._database.run(statement, connection)

    async def now(self) -> datetime:
        """Return the database's time, by which leases and due times are judged."""
        return await self._database.run(schedules.read_clock())
