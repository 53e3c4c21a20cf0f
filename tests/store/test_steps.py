"""Places of runs as they are written: the furthest note wins, however many come at once."""

from __future__ import annotations

from typing import Any

from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.store import steps
from tests.store.scene import Scene, fence


def note(state: StepState, tries: int = 1, **facts: Any) -> StepNote:
    """A note about the first place of a run."""
    return StepNote(
        branch="main",
        place=0,
        name="charge",
        kind=StepKind.STEP,
        state=state,
        tries=tries,
        seconds=0.1,
        **facts,
    )


async def test_several_notes_about_one_place_may_come_in_one_batch(scene: Scene) -> None:
    """A step that is shown as running just before it completes is completed, and its calls are all logged."""
    one = fence(await scene.one())
    batch = [
        note(StepState.RETRYING, 1, parameters="{}", error='{"type": "OSError", "message": "away"}'),
        note(StepState.RUNNING, 2),
        note(StepState.COMPLETED, 2, parameters="{}", result="7"),
        note(StepState.RUNNING, 2),
    ]
    saved = await scene.run(steps.save_steps([(one, each) for each in batch]))
    assert saved == {one.job_id: False}
    (step,) = await scene.run(steps.list_steps(one.job_id))
    assert (step.state, step.tries, step.result) == (StepState.COMPLETED, 2, 7)
    calls = await scene.run(steps.list_activities(one.job_id, 0, 10))
    assert [call.tried for call in calls] == [1, 2]


async def test_a_late_note_changes_nothing(scene: Scene) -> None:
    """What has completed is not shown as running again, and a try gives way only to a later one."""
    one = fence(await scene.one())
    for state, tries in ((StepState.RETRYING, 2), (StepState.RUNNING, 1), (StepState.RUNNING, 2)):
        await scene.run(steps.save_steps([(one, note(state, tries))]))
    (step,) = await scene.run(steps.list_steps(one.job_id))
    assert (step.state, step.tries) == (StepState.RETRYING, 2)
    for state in (StepState.COMPLETED, StepState.RUNNING, StepState.FAILED):
        await scene.run(steps.save_steps([(one, note(state, 2))]))
    (step,) = await scene.run(steps.list_steps(one.job_id))
    assert step.state is StepState.COMPLETED
