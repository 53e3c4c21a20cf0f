"""What is asked of `Signals`, and of everything that writes for a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from holdfast.engine import Activity, Complete, Signal, StepState, Suspend
from holdfast.errors import RunEnded
from holdfast.testing.engine.ground import EngineGround, begun, one, refused, report


class FenceConformance:
    """What is asked of everything that writes for a claim."""

    async def test_a_stale_claim_writes_nothing(self, ground: EngineGround) -> None:
        """Once another attempt owns the run, a write is refused, or left out where nothing may be held up."""
        former, present = await ground.worker(), await ground.worker()
        stale = await begun(former)
        await former.checkpoints.save(stale, "first")
        await ground.lapse(former)
        await present.queue.rescue()
        claim = await one(present)
        await present.signals.send(claim.run_id, "go")
        writes: list[Awaitable[Any]] = [
            former.queue.renew(stale),
            former.queue.end(stale, Complete()),
            former.checkpoints.save(stale, "second"),
            former.checkpoints.delete(stale),
            former.signals.take(stale, "go", place=0),
        ]
        for write in writes:
            with refused():
                await write
        former.progress.report(stale, report(StepState.COMPLETED))
        former.activities.append(stale, Activity(step="step 0", place=0))
        await former.progress.settle()
        await former.activities.settle()
        assert list(await present.progress.read(claim.run_id)) == []
        assert list(await present.activities.read(claim.run_id)) == []
        saved = await present.checkpoints.load(claim.run_id)
        assert saved is not None
        assert (saved.state, saved.attempt) == ("first", 1)
        await present.queue.end(claim, Complete())


class SignalConformance:
    """What is asked of `Signals`."""

    async def test_signals_are_taken_in_order_and_once(self, ground: EngineGround) -> None:
        """First in, first out for each name; asked again for a place, it is the same one again."""
        engine = await ground.worker()
        claim = await begun(engine)
        for payload in ("first", "second"):
            await engine.signals.send(claim.run_id, "go", payload)
        first = await engine.signals.take(claim, "go", place=0)
        assert first == Signal("first")
        assert await engine.signals.take(claim, "go", place=0) == first
        assert await engine.signals.take(claim, "go", place=1) == Signal("second")
        assert await engine.signals.take(claim, "go", place=2) is None
        assert await engine.signals.take(claim, "stop", place=3) is None

    async def test_a_place_has_its_signal_for_good(self, ground: EngineGround) -> None:
        """The next attempt gets the same one there; another branch and another run have their own."""
        dead, heir = await ground.worker(), await ground.worker()
        stale, other = await begun(dead), await begun(heir)
        for payload in ("first", "second"):
            await dead.signals.send(stale.run_id, "go", payload)
        assert await dead.signals.take(stale, "go", place=0) == Signal("first")
        assert await heir.signals.take(other, "go", place=0) is None
        await ground.lapse(dead)
        await heir.queue.rescue()
        claim = await one(heir)
        assert await heir.signals.take(claim, "go", place=0) == Signal("first")
        assert await heir.signals.take(claim, "go", place=0, branch="left") == Signal("second")

    async def test_a_signal_that_meets_a_suspension_is_not_lost(self, ground: EngineGround) -> None:
        """Sent in the moment in which its run falls asleep, it wakes the run all the same."""
        engine, other = await ground.worker(), await ground.worker()
        for _ in range(10):
            claim = await begun(engine)
            asleep = engine.queue.end(claim, Suspend("a word", signals=("go",)))
            await asyncio.gather(asleep, other.signals.send(claim.run_id, "go"))
            await engine.queue.end(await one(engine), Complete())

    async def test_a_signal_wakes_whoever_is_suspended_for_it(self, ground: EngineGround) -> None:
        """Whether it comes before the run falls asleep or after; one of another name does not."""
        engine = await ground.worker()
        claim = await begun(engine)
        await engine.queue.end(claim, Suspend("an approval", signals=("approved",)))
        await engine.signals.send(claim.run_id, "something else")
        assert await ground.state(claim.run_id) == "waiting"
        await engine.signals.send(claim.run_id, "approved", {"by": "ada"})
        claim = await one(engine)
        assert (await engine.signals.take(claim, "approved", place=0)) == Signal({"by": "ada"})
        await engine.signals.send(claim.run_id, "approved", {"by": "bob"})
        await engine.queue.end(claim, Suspend("another approval", signals=("approved",)))
        claim = await one(engine)
        assert (await engine.signals.take(claim, "approved", place=1)) == Signal({"by": "bob"})

    async def test_a_signal_with_the_same_key_is_the_same(self, ground: EngineGround) -> None:
        """Whoever sends it twice because the first answer was lost does no harm."""
        engine = await ground.worker()
        claim = await begun(engine)
        sent = [await engine.signals.send(claim.run_id, "go", n, key="mail 7") for n in range(2)]
        assert sent[0] == sent[1]
        assert await engine.signals.take(claim, "go", place=0) == Signal(0)
        assert await engine.signals.take(claim, "go", place=1) is None

    async def test_a_run_that_has_ended_takes_no_signals(self, ground: EngineGround) -> None:
        """Whoever sends one hears of it, and so does who sends one to a run that never was."""
        engine = await ground.worker()
        claim = await begun(engine)
        await engine.queue.end(claim, Complete())
        for run_id in (claim.run_id, 10**12):
            with refused(RunEnded):
                await engine.signals.send(run_id, "go")
