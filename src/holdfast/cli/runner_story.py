"""What runners had to do with a job, for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.cli.moments import clock, span
from holdfast.cli.output import print_table, tell, tell_facts
from holdfast.model.assignment import ArtifactRecord, AssignmentRecord, PlacementRecord, RunnerStory
from holdfast.model.runner import Rung

ASSIGNMENTS = ("", "runner", "offered", "accepted", "started", "last life", "ended", "outcome")
LADDER = ("requested", *Rung)
ARTIFACTS = ("attempt", "name", "bytes", "sha256")


def print_runner_story(story: RunnerStory) -> None:
    """Print what the job asks of runners, what each of them did, how cancels went, and what they left."""
    tell("\nfor runners")
    tell_facts(_wishes(story.placement))
    if story.assignments:
        tell("\nassignments")
        print_table(ASSIGNMENTS, [_assignment(one) for one in story.assignments])
    for one in story.assignments:
        _print_cancel(one)
        _print_evidence(one)
    if story.artifacts:
        tell("\nartifacts")
        print_table(ARTIFACTS, [artifact_row(one) for one in story.artifacts])


def _wishes(placement: PlacementRecord) -> list[tuple[str, str | None]]:
    pin = placement.runner
    if placement.pinned_until is not None:
        pin = f"{pin}, others from {clock(placement.pinned_until)} on"
    stall = placement.stall_limit
    return [
        ("labels", ", ".join(placement.labels) or "none"),
        ("pinned to", pin),
        ("on loss", placement.on_loss),
        ("stall limit", None if stall is None else span(timedelta(seconds=stall))),
        ("spec", f"sha256 {placement.spec_sha256}"),
    ]


def _assignment(one: AssignmentRecord) -> tuple[object, ...]:
    return (
        f"#{one.attempt}",
        one.runner or one.worker_id,
        clock(one.offered_at),
        _time(one.accepted_at),
        _time(one.started_at),
        _time(one.progressed_at),
        _time(one.ended_at),
        one.outcome,
    )


def _print_cancel(one: AssignmentRecord) -> None:
    if not one.rungs:
        return
    rungs = sorted(one.rungs.items(), key=lambda rung: (rung[1], LADDER.index(rung[0])))
    if one.ended_at is not None:
        rungs.append(("ended", one.ended_at))
    why = "" if one.cancel_reason is None else f": {one.cancel_reason}"
    tell(f"\ncancel of #{one.attempt}{why}")
    first = rungs[0][1]
    print_table(("rung", "at", "after"), [(name, clock(at), span(at - first)) for name, at in rungs])


def _print_evidence(one: AssignmentRecord) -> None:
    if one.evidence:
        tell(f"\nrefused reports of #{one.attempt}")
        rows = [(clock(late.at), *_said(late.report)) for late in one.evidence]
        print_table(("at", "outcome", "reason"), rows)


def _said(report: dict[str, Any]) -> Sequence[object]:
    return report.get("outcome"), report.get("reason") or None


def artifact_row(one: ArtifactRecord) -> tuple[object, ...]:
    """Return an artifact as a row of a table under `ARTIFACTS`."""
    return f"#{one.attempt}", one.name, f"{one.size:,}", one.sha256


def _time(moment: datetime | None) -> str | None:
    # The day stands in the first column of moments.
    shown = clock(moment)
    return None if shown is None else shown.partition(" ")[2]
