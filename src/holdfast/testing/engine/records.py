"""What is asked of a `Checkpointer`, of `Progress` and of an `ActivityLog`."""

from __future__ import annotations

from typing import Any

from holdfast.engine import Activity, Complete, Release, StepState
from holdfast.errors import PayloadTooLarge, StateConflict
from holdfast.testing.engine.ground import EngineGround, begun, one, refused, report


class CheckpointConformance:
    """What is asked of a `Checkpointer`."""

    async def test_a_checkpoint_is_saved_found_and_forgotten(self, ground: EngineGround) -> None:
        """The last one saved is found, by whoever asks; there is none before and after."""
        engine, other = await ground.worker(), await ground.worker()
        claim = await begun(engine)
        assert await engine.checkpoints.load(claim.run_id) is None
        assert await engine.checkpoints.delete(claim) is False
        for state in ({"next": 1}, {"next": 2, "of": [None, "ä"]}):
            await engine.checkpoints.save(claim, state)
        saved = await other.checkpoints.load(claim.run_id)
        assert saved is not None
        assert (saved.state, saved.version, saved.attempt) == ({"next": 2, "of": [None, "ä"]}, 1, 1)
        assert await engine.checkpoints.delete(claim) is True
        assert await engine.checkpoints.load(claim.run_id) is None

    async def test_an_empty_state_is_not_a_missing_one(self, ground: EngineGround) -> None:
        """Nothing, an empty object and null are three different things."""
        engine = await ground.worker()
        claim = await begun(engine)
        states: list[Any] = [None, {}, "", 0]
        for state in states:
            await engine.checkpoints.save(claim, state)
            saved = await engine.checkpoints.load(claim.run_id)
            assert saved is not None
            assert saved.state == state

    async def test_a_newer_state_is_refused_and_an_older_one_told(self, ground: EngineGround) -> None:
        """An engine does not read what a later version of it has saved, and sees how old a state is."""
        old, new = await ground.worker(version=1), await ground.worker(version=2)
        claim = await begun(old)
        await old.checkpoints.save(claim, "old")
        found = await new.checkpoints.load(claim.run_id)
        assert found is not None
        assert found.version == 1
        await old.queue.end(claim, Release())
        await new.checkpoints.save(await one(new), "new")
        with refused(StateConflict):
            await old.checkpoints.load(claim.run_id)

    async def test_each_run_has_a_checkpoint_of_its_own(self, ground: EngineGround) -> None:
        """What one saves or forgets is nothing to another; what is too large replaces nothing."""
        engine = await ground.worker()
        claim, other = await begun(engine), await begun(engine)
        await engine.checkpoints.save(claim, "mine")
        assert await engine.checkpoints.load(other.run_id) is None
        await engine.checkpoints.save(other, "theirs")
        with refused(PayloadTooLarge):
            await engine.checkpoints.save(claim, "x" * (1024 * 1024))
        assert await engine.checkpoints.delete(other) is True
        saved = await engine.checkpoints.load(claim.run_id)
        assert saved is not None
        assert saved.state == "mine"

    async def test_a_state_outlives_its_attempt(self, ground: EngineGround) -> None:
        """The next attempt goes on from what the last one has saved."""
        dead, heir = await ground.worker(), await ground.worker()
        await dead.checkpoints.save(await begun(dead), {"next": 3})
        await ground.lapse(dead)
        await heir.queue.rescue()
        claim = await one(heir)
        saved = await heir.checkpoints.load(claim.run_id)
        assert saved is not None
        assert (saved.state, saved.attempt, claim.attempt) == ({"next": 3}, 1, 2)


class WatchConformance:
    """What is asked of `Progress` and of an `ActivityLog`."""

    async def test_progress_only_goes_forward(self, ground: EngineGround) -> None:
        """What has completed stays so, and a late word of an earlier try changes nothing."""
        engine = await ground.worker()
        claim = await begun(engine)
        for state, tries in (
            (StepState.RUNNING, 1),
            (StepState.RETRYING, 2),
            (StepState.RUNNING, 1),
            (StepState.COMPLETED, 3),
            (StepState.RUNNING, 3),
            (StepState.FAILED, 4),
        ):
            engine.progress.report(claim, report(state, tries=tries))
            await engine.progress.settle()
        [step] = await engine.progress.read(claim.run_id)
        assert (step.name, step.state, step.tries, step.attempt) == ("step 0", StepState.COMPLETED, 3, 1)
        assert step.finished_at is not None

    async def test_reports_that_come_at_once_lose_nothing(self, ground: EngineGround) -> None:
        """However many are on their way, the furthest is what is found."""
        engine = await ground.worker()
        claim = await begun(engine)
        for place in range(50):
            for state in (StepState.RUNNING, StepState.COMPLETED):
                engine.progress.report(claim, report(state, place, seconds=50.0 - place))
        await engine.progress.settle()
        steps = await engine.progress.read(claim.run_id)
        assert [step.place for step in steps] == list(range(50))
        assert {step.state for step in steps} == {StepState.COMPLETED}
        after = (steps[19].branch, steps[19].place)
        assert list(await engine.progress.read(claim.run_id, after=after, limit=20)) == list(steps[20:40])

    async def test_a_newer_attempt_takes_over_what_is_not_done(self, ground: EngineGround) -> None:
        """It begins its tries anew, and what an attempt before it has completed stays as it was."""
        dead, heir = await ground.worker(), await ground.worker()
        stale = await begun(dead)
        dead.progress.report(stale, report(StepState.COMPLETED, 0))
        dead.progress.report(stale, report(StepState.RETRYING, 1, tries=3))
        await dead.progress.settle()
        await ground.lapse(dead)
        await heir.queue.rescue()
        claim = await one(heir)
        for place in range(2):
            heir.progress.report(claim, report(StepState.RUNNING, place))
        await heir.progress.settle()
        done, begun_anew = await heir.progress.read(claim.run_id)
        assert (done.state, done.attempt) == (StepState.COMPLETED, 1)
        assert (begun_anew.state, begun_anew.attempt, begun_anew.tries) == (StepState.RUNNING, 2, 1)

    async def test_each_branch_of_each_run_has_rows_of_its_own(self, ground: EngineGround) -> None:
        """A step on two branches is two rows, another run has none of them, and details come back whole."""
        engine = await ground.worker()
        claim, other = await begun(engine), await begun(engine)
        for branch in ("left", "right"):
            engine.progress.report(
                claim, report(StepState.RUNNING, branch=branch, detail={"message": branch, "done": [1, 2]})
            )
        await engine.progress.settle()
        steps = await engine.progress.read(claim.run_id)
        assert {step.branch: step.detail for step in steps} == {
            branch: {"message": branch, "done": [1, 2]} for branch in ("left", "right")
        }
        assert list(await engine.progress.read(other.run_id)) == []
        assert list(await engine.progress.read(10**12)) == []

    async def test_the_log_has_a_line_for_each_call(self, ground: EngineGround) -> None:
        """In the order of the calls, each with an id of its own, whatever it is called with."""
        engine = await ground.worker()
        claim = await begun(engine)
        engine.activities.append(
            claim, Activity(step="charge", place=0, parameters=[7], error=OSError("away"), seconds=2.0)
        )
        engine.activities.append(
            claim, Activity(step="charge", place=0, tried=2, parameters=object(), result={"receipt": 1})
        )
        await engine.activities.settle()
        first, second = await engine.activities.read(claim.run_id)
        assert first.id < second.id
        assert (first.step, first.parameters, first.seconds) == ("charge", [7], 2.0)
        assert first.error["message"] == "away"
        assert (second.tried, second.result, second.error) == (2, {"receipt": 1}, None)
        assert await engine.activities.read(claim.run_id, after=first.id) == [second]
        assert await engine.activities.read(claim.run_id, limit=1) == [first]
        assert list(await engine.activities.read(10**12)) == []

    async def test_what_is_watched_is_there_when_the_run_has_ended(self, ground: EngineGround) -> None:
        """Notes that are on their way when an attempt ends are written before its lease is gone."""
        engine = await ground.worker()
        claim = await begun(engine)
        engine.progress.report(claim, report(StepState.COMPLETED))
        engine.activities.append(claim, Activity(step="step 0", place=0))
        await engine.queue.end(claim, Complete())
        assert len(await engine.progress.read(claim.run_id)) == 1
        assert len(await engine.activities.read(claim.run_id)) == 1
