"""A small workflow engine that is not Holdfast's own, and a process of it that is killed half-way.

A workflow of this engine is a list of steps over a dictionary of facts.  What it stands on are the interfaces
of `holdfast.engine`: a queue with leases, checkpoints, signals, progress and a log of calls.

It prints:
    killed while the order was being packed
    order 7: paid 20, packed by worker 2, shipped for ada
    calls that came to an end: charge, pack, ship
    attempts: lost, suspended, completed
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import holdfast
from holdfast import engine
from holdfast.engine import keeping

Facts = dict[str, Any]
Call = Callable[[Facts], Awaitable[Facts]]
CONFIG = engine.EngineConfig(kinds=("order",), name="list engine", ttl=1.0)


@dataclass(frozen=True)
class WaitFor:
    """A step that waits for a signal and keeps its payload under the signal's name."""

    signal: str


Step = Call | WaitFor


class ListEngine:
    """Runs lists of steps; each time it goes on behind the last one that was saved."""

    def __init__(self, ground: engine.Engine, workflows: Mapping[str, Sequence[Step]]) -> None:
        self.ground, self.workflows = ground, workflows

    async def work(self) -> None:
        """Go on with whatever may go on, for ever."""
        tending = asyncio.create_task(self.tend())
        while not tending.done():  # It ends only by an error, and then so does this.
            claims = await self.ground.queue.claim(limit=4)
            await asyncio.gather(*map(self.go_on, claims), asyncio.sleep(0.0 if claims else 0.05))
        await tending

    async def tend(self) -> None:
        """Rescue and stage, unless a `holdfast worker` does so."""
        while True:
            await self.ground.queue.rescue()
            await self.ground.queue.stage()
            await asyncio.sleep(0.5)

    async def go_on(self, claim: engine.Claim) -> None:
        """Take a run as far as it goes in one attempt."""
        try:
            async with keeping(self.ground.queue, claim, every=CONFIG.ttl / 3) as keeper:
                outcome = await self.play(claim, keeper)
            await self.ground.queue.end(claim, outcome)
        except holdfast.LeaseLost:
            pass  # Another process goes on with it.

    async def play(self, claim: engine.Claim, keeper: engine.Keeper) -> engine.Outcome:
        """Do the steps that are left; answers what the attempt came to."""
        saved = await self.ground.checkpoints.load(claim.run_id)
        done, facts = (0, claim.spec) if saved is None else saved.state
        for place, step in enumerate(self.workflows[claim.kind]):
            if place < done:
                continue
            if keeper.wishes.cancelled:
                return engine.Cancel(f"cancelled before step {place}")
            if isinstance(step, WaitFor):
                signal = await self.ground.signals.take(claim, step.signal, place=place)
                if signal is None:
                    return engine.Suspend(f"signal {step.signal!r}", signals=(step.signal,))
                facts |= {step.signal: signal.payload}
            else:
                try:
                    facts |= await self.call(claim, place, step, facts)
                except ConnectionError as error:
                    return engine.Retry(reason=str(error))
            await self.ground.checkpoints.save(claim, [place + 1, facts])
        return engine.Complete(facts)

    async def call(self, claim: engine.Claim, place: int, step: Call, facts: Facts) -> Facts:
        """Do one step, where everybody can see it."""
        report = engine.StepReport(step=step.__name__, place=place, state=engine.StepState.RUNNING)
        self.ground.progress.report(claim, report)
        began = time.monotonic()
        result = await step(facts | {"attempt": claim.attempt, "worker": claim.worker_id})
        took = time.monotonic() - began
        done = engine.Activity(step=step.__name__, place=place, parameters=facts, result=result, seconds=took)
        self.ground.activities.append(claim, done)
        self.ground.progress.report(claim, replace(report, state=engine.StepState.COMPLETED, seconds=took))
        return result


async def charge(facts: Facts) -> Facts:
    return {"paid": 10 * facts["items"]}


async def pack(facts: Facts) -> Facts:
    if facts["attempt"] == 1:
        await asyncio.sleep(60)  # Long enough to be killed in.
    return {"packed_by": facts["worker"]}


async def ship(facts: Facts) -> Facts:
    return {"by": facts["approved"]["by"]}


WORKFLOWS: dict[str, list[Step]] = {"order": [charge, pack, WaitFor("approved"), ship]}


async def work(dsn: str) -> None:
    async with engine.EngineStore(dsn, CONFIG) as store:
        await ListEngine(store, WORKFLOWS).work()


async def main(dsn: str) -> None:
    async with engine.EngineStore(dsn, CONFIG) as store, holdfast.Client(dsn) as client:
        run = await store.queue.enqueue("order", {"order_id": 7, "items": 2})
        command = (sys.executable, "-m", "examples.engine", "work")
        first = await asyncio.create_subprocess_exec(*command)
        while "pack" not in [step.name for step in await store.progress.read(run.id)]:
            await asyncio.sleep(0.05)
        first.kill()
        print("killed while the order was being packed")
        second = await asyncio.create_subprocess_exec(*command)
        while (await client.job(run.id)).state != "waiting":
            await asyncio.sleep(0.05)
        await store.signals.send(run.id, "approved", {"by": "ada"})
        facts = await client.wait(run.id, timeout=30)
        second.kill()
        print("order {order_id}: paid {paid}, packed by worker {packed_by}, shipped for {by}".format(**facts))
        print("calls that came to an end:", ", ".join(a.step for a in await store.activities.read(run.id)))
        print("attempts:", ", ".join(attempt.outcome for attempt in (await client.job(run.id)).attempts))
        await asyncio.gather(first.wait(), second.wait())


if __name__ == "__main__":
    task = work if sys.argv[1:] == ["work"] else main
    asyncio.run(task(os.environ["HOLDFAST_DATABASE_URL"]))
