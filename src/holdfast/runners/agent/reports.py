"""Reports in forms that the server takes: of an end, told later, and after it has refused one."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from holdfast.errors import ServerRefused
from holdfast.rules.backoff import Backoff
from holdfast.rules.outcome import rest_after, storable
from holdfast.runners.agent.messages import Assignment, Outcome, Report, Rung, StreamTotal

# What the server takes, in characters.
LONGEST_REASON = 2000


def acceptable(report: Report, rung: Rung | None, totals: dict[str, StreamTotal]) -> Report:
    """Return the report with its rung and its logs, in a size that the server takes."""
    return msgspec.structs.replace(
        report,
        reason=storable(report.reason)[:LONGEST_REASON],
        error=None if report.error is None else storable(report.error),
        rung=rung,
        logs=totals or None,
    )


def rested(report: Report, assignment: Assignment, backoffs: Mapping[str, Backoff]) -> Report:
    """Return the report of a failure with the rest that its kind gives, of which the server knows nothing.

    What the handler chose comes first, then the job's own policy, by which the server decides.
    """
    backoff = backoffs.get(assignment.kind)
    may_rest = report.outcome is Outcome.FAILED and report.retry and report.delay is None
    if backoff is None or assignment.retry is not None or not may_rest:
        return report
    told = report.error or report.reason
    delay, error = rest_after(told, failures=assignment.failures, backoff=backoff, random=random.random)
    return msgspec.structs.replace(report, delay=delay, error=error)


def instead(report: Report, error: ServerRefused) -> Report | None:
    """Return what may be told where *report* was refused; None: nothing."""
    if error.type == "logs-incomplete" and report.logs and not _gives_up(report):
        return for_later(report)
    return _bare(report, error) if error.is_about_body else None


def _bare(report: Report, error: ServerRefused) -> Report:
    """Return what is told of an end that cannot be: untold, its job would count as lost and run again."""
    reason = storable(f"its end ({report.outcome}) was refused: {error.problem}")[:LONGEST_REASON]
    return Report(outcome=Outcome.FAILED, reason=reason, error=reason, retry=False, rung=report.rung)


def _gives_up(report: Report) -> bool:
    return all(total.gap for total in (report.logs or {}).values())


def for_later(report: Report) -> Report:
    """Return a report that gives up what the server lacks of the logs: nobody can send it any more."""
    totals = {
        name: StreamTotal(size=total.size, sha256=total.sha256, gap=True)
        for name, total in (report.logs or {}).items()
    }
    return msgspec.structs.replace(report, logs=totals or None)
