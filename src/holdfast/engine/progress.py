"""Progress of steps and the log of their calls, in PostgreSQL."""

from __future__ import annotations

from typing import Any

from holdfast.engine.claims import Claim
from holdfast.engine.interfaces import Activity, StepReport
from holdfast.engine.pen import Pen
from holdfast.model.activity import ActivityNote
from holdfast.model.step import ActivityRecord, StepKind, StepNote, StepRecord
from holdfast.store import steps
from holdfast.store.database import Database
from holdfast.workflow.failures import recorded
from holdfast.workflow.redaction import Redactions


class PostgresProgress:
    """Rows of ``steps``, as Holdfast's own runs have them: `holdfast runs show` shows them."""

    def __init__(self, database: Database, pen: Pen, redactions: Redactions) -> None:
        self._database, self._pen, self._redactions = database, pen, redactions

    def report(self, claim: Claim, report: StepReport) -> None:
        """Take a report; it is written behind the engine's back."""
        shown = self._redactions.shown
        note = StepNote(
            branch=report.branch,
            place=report.place,
            name=report.step,
            kind=StepKind.STEP,
            state=report.state,
            tries=report.tries,
            seconds=report.seconds,
            error=_told(report.step, report.error, self._redactions),
            detail=None if report.detail is None else shown(report.step, report.detail),
        )
        self._pen.put(claim.fence, note)

    async def settle(self) -> None:
        """Wait until what was reported is written, or given up."""
        await self._pen.settle()

    async def read(
        self, run_id: int, *, after: tuple[str, int] | None = None, limit: int = 1000
    ) -> list[StepRecord]:
        """Return steps of a run behind a branch and place, in the order in which they began."""
        return await self._database.run(steps.list_steps(run_id, after, limit))


class PostgresActivityLog:
    """Rows of ``activities``, whose ids the database gives."""

    def __init__(self, database: Database, pen: Pen, redactions: Redactions) -> None:
        self._database, self._pen, self._redactions = database, pen, redactions

    def append(self, claim: Claim, activity: Activity) -> None:
        """Take a line; it is written behind the engine's back."""
        note = ActivityNote(
            step=activity.step,
            branch=activity.branch,
            place=activity.place,
            tried=activity.tried,
            parameters=self._shown(activity.step, activity.parameters),
            result=self._shown(activity.step, activity.result),
            error=_told(activity.step, activity.error, self._redactions),
            ago=activity.seconds,
            seconds=activity.seconds,
        )
        self._pen.put(claim.fence, note)

    async def settle(self) -> None:
        """Wait until what was appended is written, or given up."""
        await self._pen.settle()

    async def read(self, run_id: int, *, after: int = 0, limit: int = 1000) -> list[ActivityRecord]:
        """Return lines of a run behind the one with id *after*, in the order in which they were written."""
        return await self._database.run(steps.list_activities(run_id, after, limit))

    def _shown(self, step: str, value: Any) -> str | None:
        return None if value is None else self._redactions.shown(step, value)


def _told(step: str, error: BaseException | None, redactions: Redactions) -> str | None:
    return None if error is None else redactions.error(step, recorded(error))
