"""One job for people: what was asked, how it stands, what happened, what operators did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.cli.moments import ago, clock, span, took
from holdfast.cli.output import print_table, tell, tell_facts
from holdfast.model.audit import AuditRecord
from holdfast.model.job import AttemptRecord, JobRecord


def print_story(record: JobRecord, why: str | None, audit: Sequence[AuditRecord], now: datetime) -> None:
    """Print everything that is known of a job."""
    tell_facts(_facts(record, why, now))
    if record.attempts:
        tell("\nattempts")
        print_table(
            ("", "outcome", "claimed", "waited", "ran", "worker", "reason"),
            [_attempt(attempt, now) for attempt in record.attempts],
        )
    _print_errors(record.attempts)
    if audit:
        tell("\noperators")
        print_table(("at", "who", "action", "reason"), [act_row(act) for act in reversed(audit)])


def _facts(record: JobRecord, why: str | None, now: datetime) -> list[tuple[str, Any]]:
    progress = None
    if record.progress is not None:
        progress = f"{record.progress:.0%} {record.progress_note or ''}".strip()
    return [
        ("job", f"{record.id} {record.kind}"),
        ("state", record.state.value),
        ("waits", why),
        ("queue", f"{record.queue}, priority {record.priority}"),
        ("enqueued", _when(record.created_at, now)),
        ("due", _when(record.run_at, now)),
        ("cancel asked", _when(record.cancel_requested_at, now)),
        ("ended", _when(record.finished_at, now)),
        ("reason", record.reason),
        ("progress", progress),
        ("failures", f"{record.failures} of at most {record.max_attempts}"),
        ("timeout", span(timedelta(seconds=record.timeout))),
        ("unique key", record.unique_key),
        ("key", record.concurrency_key),
        ("parent", record.parent_id),
        ("tags", ", ".join(record.tags) or None),
        ("meta", _json(record.meta) if record.meta else None),
        ("args", _json(record.args)),
        ("result", None if record.result is None else _json(record.result)),
    ]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _when(moment: datetime | None, now: datetime) -> str | None:
    return None if moment is None else f"{clock(moment)} ({ago(moment, now)})"


def _attempt(attempt: AttemptRecord, now: datetime) -> tuple[object, ...]:
    held = attempt.claimed_at is not None
    worker = None if attempt.worker_id is None else f"{attempt.worker_id} {attempt.worker or ''}".strip()
    return (
        f"#{attempt.number}" if held else "",
        attempt.outcome,
        clock(attempt.claimed_at if held else attempt.ended_at),
        _between(attempt.claimed_at, attempt.started_at),
        _between(attempt.started_at, attempt.ended_at or now),
        worker,
        attempt.reason,
    )


def _between(first: datetime | None, last: datetime | None) -> str | None:
    return None if first is None or last is None else took(last - first)


def _print_errors(attempts: Sequence[AttemptRecord]) -> None:
    for attempt in attempts:
        # An error that says no more than its reason is in the table already.
        if attempt.error is not None and attempt.error.strip() != (attempt.reason or "").strip():
            tell(f"\nerror of #{attempt.number}\n{attempt.error.rstrip()}")


def act_row(act: AuditRecord) -> tuple[object, ...]:
    """Return an act of an operator as a row of a table: when, who, what, why."""
    return (clock(act.at), act.actor, act.action, act.reason)
