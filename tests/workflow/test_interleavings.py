"""Every interleaving of a run that falls asleep and of what wakes it, step by step in two sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations

import pytest

from holdfast.model.job import ClaimedJob, NewJob
from holdfast.model.outcome import Fail, Suspend
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.store import attempts, children, runs, signals
from holdfast.store.attempts import Ended
from holdfast.store.children import Place
from holdfast.store.runs import Suspended
from tests.store.scene import KIND, Scene, fence
from tests.workflow.test_races import Session, session

Step = Callable[[], Awaitable[object]]


def interleavings(first: str, second: str) -> list[str]:
    """Every way to merge the steps of two sessions, each in its order."""
    merged = []
    length = len(first) + len(second)
    for places in combinations(range(length), len(first)):
        ours, theirs = iter(first), iter(second)
        merged.append("".join(next(ours if place in places else theirs) for place in range(length)))
    return merged


class Actor:
    """One session, which takes its steps in turn; one that waits for a lock holds up the rest."""

    def __init__(self, scene: Scene, session: Session, steps: Sequence[Step]) -> None:
        self._scene, self._session, self._steps = scene, session, iter(steps)
        self._going: asyncio.Task[None] | None = None

    async def advance(self) -> None:
        """Take the next step, until it is done or has to wait for the other session."""
        self._going = asyncio.create_task(self._after(self._going, next(self._steps)))
        blocked = asyncio.create_task(self._scene.blocked(self._session.connection))
        await asyncio.wait({self._going, blocked}, return_when=asyncio.FIRST_COMPLETED)
        blocked.cancel()

    async def _after(self, before: asyncio.Task[None] | None, step: Step) -> None:
        if before is not None:
            await before
        await step()

    async def end(self) -> None:
        """Wait for the last step."""
        if self._going is not None:
            await self._going


async def play(order: str, actors: dict[str, Actor]) -> None:
    """Let each letter's actor take a step."""
    for letter in order:
        await actors[letter.lower()].advance()
    async with asyncio.timeout(20):
        for actor in actors.values():
            await actor.end()


def asleep(scene: Scene, sleeper: Session, job: ClaimedJob, decision: Suspend, *, kept: bool = True) -> Actor:
    """A run that falls asleep: locks its row and looks; then the end of its transaction."""
    suspend = runs.suspend_runs([Suspended(fence(job), decision)])
    return Actor(scene, sleeper, [lambda: sleeper.run(suspend), sleeper.commit if kept else sleeper.rollback])


@pytest.mark.parametrize("end", ["both commit", "the sleep is undone", "the signal is undone"])
@pytest.mark.parametrize("order", interleavings("Ss", "Gtg"))
async def test_no_order_of_sleep_and_signal_loses_the_signal(scene: Scene, order: str, end: str) -> None:
    """S sleeps, s ends that; G sends, t is what the commit looks at first, g ends that: all ten orders."""
    job = await scene.one()
    sleeper, sender = await session(scene), await session(scene)
    send = signals.send_signal(job.id, "go", "1", None)
    sending: list[Step] = [
        lambda: sender.run(send),
        lambda: sender.connection.execute("set constraints all immediate"),
        sender.rollback if end == "the signal is undone" else sender.commit,
    ]
    listen = Suspend("a signal", signals=("go",))
    sleeping = asleep(scene, sleeper, job, listen, kept=end != "the sleep is undone")
    signalling = Actor(scene, sender, sending)
    await play(order, {"s": sleeping, "g": signalling, "t": signalling})
    expected = {
        "both commit": "available",
        "the sleep is undone": "running",
        "the signal is undone": "waiting",
    }
    assert await scene.states() == {job.id: expected[end]}
    unread = 0 if end == "the signal is undone" else 1
    assert await scene.db.value("select count(*) from holdfast.signals where consumed_at is null") == unread
    sleeps = await scene.db.value("select count(*) from holdfast.suspensions")
    assert sleeps == (1 if end == "the signal is undone" else 0)


@pytest.mark.parametrize("order", interleavings("Ss", "Ee"))
async def test_no_order_of_sleep_and_a_childs_end_loses_the_end(scene: Scene, order: str) -> None:
    """S sleeps, s commits that; E ends the child, e commits that: all six orders."""
    parent = await scene.one()
    place = Place("main", 0, KIND, "child", "{}")
    family = await scene.run(children.start_children(fence(parent), place, [NewJob(kind=KIND, args="{}")]))
    assert family is not None
    [child] = await scene.claim(await scene.worker())
    sleeper, ender = await session(scene), await session(scene)
    sleeping = asleep(scene, sleeper, parent, Suspend("a child", families=(family,)))
    ending = Actor(scene, ender, [lambda: scene.complete(child, connection=ender.connection), ender.commit])
    await play(order, {"s": sleeping, "e": ending})
    assert await scene.states() == {parent.id: "available", child.id: "completed"}


@pytest.mark.parametrize("order", interleavings("Ss", "Ee"))
async def test_no_order_of_sleep_and_a_parents_end_keeps_a_child_from_making_up_for_its_steps(
    scene: Scene, order: str
) -> None:
    """S sleeps with a new step, s commits that; E fails the parent, e commits that: all six orders."""
    parent = await scene.one()
    place = Place("main", 0, KIND, "child", '{"policy": "cancel"}')
    await scene.run(children.start_children(fence(parent), place, [NewJob(kind=KIND, args="{}")]))
    [child] = await scene.claim(await scene.worker())
    step = StepNote(branch="main", place=0, name="charge", kind=StepKind.STEP, state=StepState.COMPLETED)
    failing = attempts.finish_jobs([Ended(fence(parent), Fail("", "broken"), 0.001)])
    sleeper, ender = await session(scene), await session(scene)
    sleeping = asleep(scene, sleeper, child, Suspend("a signal", signals=("go",), notes=(step,)))
    ending = Actor(scene, ender, [lambda: ender.run(failing), ender.commit])
    await play(order, {"s": sleeping, "e": ending})
    assert await scene.states() == {parent.id: "failed", child.id: "available"}
    assert await scene.db.fetch("select run_id from holdfast.suspensions") == []


def test_the_orders_are_all_there_are() -> None:
    """Ten of two steps and three, six of two and two, and none twice."""
    assert len(set(interleavings("Ss", "Gtg"))) == 10
    assert len(set(interleavings("Ss", "Ee"))) == 6
