"""What is asked of a `RunQueue`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.engine import Cancel, Complete, Engine, Fail, Outcome, Release, Renewal, Retry, Snooze, Suspend
from holdfast.errors import DuplicateJob, InputInvalid
from holdfast.testing.engine.ground import KIND, EngineGround, Undone, begun, one, refused


class QueueConformance:
    """What is asked of a `RunQueue`."""

    async def test_a_run_goes_from_its_enqueue_to_its_end(self, ground: EngineGround) -> None:
        """The claim carries what was enqueued, is given once, may be renewed, and ends once."""
        engine = await ground.worker()
        handle = await engine.queue.enqueue(KIND, {"order": 7})
        claim = await one(engine)
        assert (claim.run_id, claim.attempt, claim.spec) == (handle.id, 1, {"order": 7})
        assert list(await engine.queue.claim()) == []
        assert await engine.queue.renew(claim) == Renewal(cancelled=False, paused=False, draining=False)
        await engine.queue.end(claim, Complete({"shipped": True}))
        assert await ground.state(handle.id) == "completed"
        with refused():
            await engine.queue.end(claim, Complete())

    async def test_claims_that_race_share_no_run(self, ground: EngineGround) -> None:
        """Twenty runs and eight workers: each run is claimed once, and none is left."""
        workers = [await ground.worker() for _ in range(8)]
        wanted = {(await workers[0].queue.enqueue(KIND, {})).id for _ in range(20)}
        claimed: list[int] = []

        async def drain(engine: Engine) -> None:
            while claims := await engine.queue.claim(2):
                claimed.extend(claim.run_id for claim in claims)

        await asyncio.gather(*map(drain, workers))
        assert sorted(claimed) == sorted(wanted)

    async def test_the_best_goes_first_and_then_the_oldest(self, ground: EngineGround) -> None:
        """Priority 0 comes before 5; among equals it is first in, first out; no more come than is asked."""
        engine = await ground.worker()
        late, later, last = [(await engine.queue.enqueue(KIND, {})).id for _ in range(3)]
        urgent = (await engine.queue.enqueue(KIND, {}, priority=0)).id
        claims = [await engine.queue.claim(2), await engine.queue.claim(), await engine.queue.claim(10)]
        assert [[one.run_id for one in some] for some in claims] == [[urgent, late], [later], [last]]

    async def test_what_cannot_be_enqueued_is_refused(self, ground: EngineGround) -> None:
        """A unique key that is taken is an error where that is wanted, and so is a spec that is no data."""
        engine = await ground.worker()
        await engine.queue.enqueue(KIND, {}, unique_key="order 7")
        with refused(DuplicateJob):
            await engine.queue.enqueue(KIND, {}, unique_key="order 7", unique_policy="reject")
        with refused(InputInvalid):
            await engine.queue.enqueue(KIND, {"order": object()})
        assert len(await engine.queue.claim(10)) == 1

    async def test_a_run_of_another_kind_is_left_for_others(self, ground: EngineGround) -> None:
        """An engine is given only what it knows."""
        engine = await ground.worker()
        handle = await engine.queue.enqueue("unknown", {})
        assert list(await engine.queue.claim()) == []
        assert await ground.state(handle.id) == "available"

    async def test_a_run_is_part_of_its_callers_transaction(self, ground: EngineGround) -> None:
        """It is there once that commits, and never was if it is rolled back."""
        engine = await ground.worker()
        with refused(Undone):
            async with ground.transaction() as connection:
                await engine.queue.enqueue(KIND, {}, connection=connection)
                raise Undone
        assert list(await engine.queue.claim()) == []
        async with ground.transaction() as connection:
            handle = await engine.queue.enqueue(KIND, {}, connection=connection)
        assert (await one(engine)).run_id == handle.id

    async def test_every_outcome_ends_an_attempt(self, ground: EngineGround) -> None:
        """Each leaves the run where it says."""
        engine = await ground.worker()
        outcomes: list[tuple[Outcome, str]] = [
            (Complete(), "completed"),
            (Fail("no stock"), "failed"),
            (Cancel("not wanted"), "cancelled"),
            (Retry(delay=60, reason="away"), "scheduled"),
            (Snooze(delay=60), "scheduled"),
            (Suspend("an approval", signals=("approved",)), "waiting"),
            (Release(), "available"),
        ]
        for outcome, state in outcomes:
            claim = await begun(engine)
            await engine.queue.end(claim, outcome)
            assert await ground.state(claim.run_id) == state, outcome
            with refused():
                await engine.queue.renew(claim)
            with refused():
                await engine.queue.end(claim, Complete())

    async def test_only_errors_count_as_failures(self, ground: EngineGround) -> None:
        """To rest, to be released and to be woken cost nothing; at its limit a retry fails for good."""
        engine = await ground.worker()
        claim = await begun(engine, max_attempts=2)
        for outcome in (Release(), Snooze(delay=0), Suspend("a moment", delay=0), Retry(delay=0)):
            await engine.queue.end(claim, outcome)
            await engine.queue.stage()
            claim = await one(engine)
        assert (claim.attempt, claim.failures) == (5, 1)
        await engine.queue.end(claim, Retry())
        assert await ground.state(claim.run_id) == "failed"

    async def test_a_rest_ends_when_its_time_has_come(self, ground: EngineGround) -> None:
        """A run that was put off or sleeps is not given before, and is after."""
        engine = await ground.worker()
        for outcome in (Snooze(delay=60), Suspend("a moment", delay=timedelta(minutes=1))):
            claim = await begun(engine)
            await engine.queue.end(claim, outcome)
            await engine.queue.stage()
            assert list(await engine.queue.claim()) == []
            await ground.advance(61)
            assert await engine.queue.stage() == 1
            await engine.queue.end(await one(engine), Complete())

    async def test_a_dead_engines_runs_are_rescued(self, ground: EngineGround) -> None:
        """One goes back and counts a failure; one at its limit fails, for it may be what kills engines."""
        dead, heir = await ground.worker(), await ground.worker()
        mortal = (await dead.queue.enqueue(KIND, {}, max_attempts=1)).id
        lucky = (await dead.queue.enqueue(KIND, {}, max_attempts=2)).id
        assert len(await dead.queue.claim(2)) == 2
        await ground.lapse(dead)
        fates = {rescued.job_id: rescued.fate for rescued in await heir.queue.rescue()}
        assert fates == {mortal: "failed", lucky: "lost"}
        claim = await one(heir)
        assert (claim.run_id, claim.attempt, claim.failures) == (lucky, 2, 1)

    async def test_a_living_engines_runs_are_left_alone(self, ground: EngineGround) -> None:
        """Whoever renews keeps its runs, however long they take."""
        engine, other = await ground.worker(), await ground.worker()
        claim = await begun(engine)
        await engine.queue.renew(claim)
        assert list(await other.queue.rescue()) == []
        await engine.queue.end(claim, Complete())

    async def test_a_dead_engine_that_comes_back_may_go_on_with_other_runs(
        self, ground: EngineGround
    ) -> None:
        """What it held is gone; what it claims anew is its own."""
        engine, other = await ground.worker(), await ground.worker()
        stale = await begun(engine, max_attempts=5)
        await ground.lapse(engine)
        await other.queue.rescue()
        fresh = await one(engine)
        with refused():
            await engine.queue.renew(stale)
        await engine.queue.end(fresh, Complete())
