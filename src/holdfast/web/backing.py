"""What stands behind the routes."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.client.feed import Feed
from holdfast.client.intake import Intake
from holdfast.client.operator import Operator
from holdfast.client.submission import Submissions
from holdfast.client.watch import Watch
from holdfast.model.token import Caller
from holdfast.runners.desk import Desk
from holdfast.runners.logs import LogIntake
from holdfast.runtime.events import Events
from holdfast.runtime.exposition import Check
from holdfast.runtime.metrics import Metrics
from holdfast.store.addressed import AddressedDatabase
from holdfast.store.database import Database
from holdfast.web.config import WebConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """The database, and whoever acts on it for a request.

    *lives* and *ready* are asked by an orchestrator.
    """

    database: Database
    events: Events
    config: WebConfig
    intake: Intake
    metrics: Metrics
    watch: Watch
    feed: Feed
    logs: LogIntake
    desk: Desk
    lives: Check
    ready: Check

    def operator(self, caller: Caller) -> Operator:
        """Return the operator who acts in the name of *caller*, from their address."""
        return Operator(AddressedDatabase(self.database, caller.address), caller.name)

    def submissions(self, caller: Caller) -> Submissions:
        """Return what takes jobs in from *caller*."""
        return Submissions(AddressedDatabase(self.database, caller.address), self.intake, caller.name)
