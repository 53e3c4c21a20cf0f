"""Statements about the log of step calls, where it is written apart from the steps."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.activity import ActivityNote
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, column, numbers

_SQL = blocks("activities")


def append_activities(
    notes: Sequence[tuple[Fence, ActivityNote]], *, again: bool = False
) -> Statement[list[int]]:
    """Write lines of the log of step calls; answers the run of each line that was written.

    *again* leaves out what a former try, whose answer was lost, may have written.
    """
    notes = sorted(notes, key=lambda one: one[0].job_id)
    parameters = (
        numbers([fence.job_id for fence, _ in notes]),
        numbers([fence.attempt for fence, _ in notes]),
        [note.branch for _, note in notes],
        numbers([note.place for _, note in notes]),
        [note.step for _, note in notes],
        numbers([note.tried for _, note in notes]),
        [note.parameters for _, note in notes],
        [note.result for _, note in notes],
        [note.error for _, note in notes],
        numbers([note.ago for _, note in notes]),
        numbers([note.seconds for _, note in notes]),
        again,
    )
    return Statement("append_activities", _SQL["append_activities"], parameters, column)
