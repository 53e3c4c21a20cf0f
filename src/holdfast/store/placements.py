"""Statements that show people what runners had to do with a job."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model.assignment import ArtifactRecord, AssignmentRecord, PlacementRecord, RunnerStory
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement

_SQL = blocks("placements")


def runner_story(job_id: int) -> Statement[RunnerStory | None]:
    """Look what runners had to do with a job; None: it is not for runners."""
    return Statement("runner_story", _SQL["runner_story"], (job_id,), _story)


def _story(rows: Sequence[Row]) -> RunnerStory | None:
    if not rows:
        return None
    placement, assignments, artifacts = rows[0]
    return RunnerStory(
        msgspec.json.decode(placement, type=PlacementRecord),
        msgspec.json.decode(assignments, type=list[AssignmentRecord]),
        msgspec.json.decode(artifacts, type=list[ArtifactRecord]),
    )
