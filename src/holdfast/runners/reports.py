"""Takes in what runners report of assignments that have ended: first their logs, then their ends."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast.errors import AssignmentStale, LogOffsetWrong, LogsIncomplete
from holdfast.rules.reports import End
from holdfast.runners.ends import Accepted, Ends, Reported
from holdfast.runners.logs import LogIntake, LogTotal
from holdfast.runners.messages import Report
from holdfast.runtime.events import Events
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.log_chunks import StreamKey


class Reports:
    """Ends assignments whose logs are here."""

    def __init__(self, database: Database, events: Events) -> None:
        self._ends, self._logs = Ends(database, events), LogIntake(database)

    async def take(self, worker_id: int, fence: Fence, report: Report) -> Accepted:
        """Take a report in; raises `AssignmentStale`, `JobNotFound`, `LogsIncomplete`."""
        await self._close_logs(worker_id, fence, report)
        end = End(
            outcome=report.outcome,
            reason=report.reason,
            error=report.error,
            result=None if report.result is None else msgspec.json.encode(report.result).decode(),
            retry=report.retry,
            delay=report.delay,
        )
        text = msgspec.json.encode(report).decode()
        return await self._ends.end(Reported(fence, worker_id, end, text, report.rung))

    async def _close_logs(self, worker_id: int, fence: Fence, report: Report) -> None:
        if report.logs is None:
            return
        # Of a stale attempt the report is what counts: it is refused, and kept as evidence, by its end.
        with suppress(AssignmentStale):
            for stream, one in report.logs.items():
                total = LogTotal(one.size, one.sha256, one.gap)
                try:
                    await self._logs.close(StreamKey(fence, stream, worker_id), total)
                except LogOffsetWrong as error:
                    raise LogsIncomplete(stream, size=error.size) from None
