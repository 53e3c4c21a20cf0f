"""What is written of steps: one row for each place, which only goes forward; one line for each call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.pruner import Pruner
from holdfast.model.job import ClaimedJob
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.runtime.events import Events
from holdfast.store import blobs, checkpoints, children, runs, signals, steps
from holdfast.store.attempts import Fence
from holdfast.store.children import Place
from holdfast.store.signals import Taken, Waiter
from holdfast.testing import Clock, Probe, ThrowawayDatabase
from tests.store.scene import Scene, fence

SHOWN = "select state, attempt, tries from holdfast.steps"
CALLS = "select try, result::text from holdfast.activities order by id"
AWAITS_ITS_END = "select true from holdfast.suspensions where run_id = $1 and signals = array['end']"


def note(state: StepState, *, tries: int = 1, result: str | None = None, logged: bool = False) -> StepNote:
    """A note about the first step of a run."""
    return StepNote(
        branch="main",
        place=0,
        name="charge",
        kind=StepKind.STEP,
        state=state,
        tries=tries,
        seconds=0.5,
        result=result,
        shown=result,
        parameters="{}" if logged else None,
    )


async def write(scene: Scene, job: ClaimedJob, *notes: StepNote) -> dict[int, bool]:
    """Write notes of a run one after the other; answers what the last write came to."""
    answer: dict[int, bool] = {}
    for one in notes:
        answer = await scene.run(steps.save_steps([(fence(job), one)]))
    return answer


@pytest.mark.parametrize(
    ("late", "kept"),
    [
        (note(StepState.RUNNING, tries=3), ("completed", 1, 2)),
        (note(StepState.RETRYING, tries=2), ("completed", 1, 2)),
        (note(StepState.FAILED, tries=2), ("completed", 1, 2)),
    ],
    ids=["running", "retrying", "failed"],
)
async def test_what_has_ended_stays_as_it_is(scene: Scene, late: StepNote, kept: tuple[Any, ...]) -> None:
    """A late note of any kind never overwrites a completed step."""
    job = await scene.one()
    await write(scene, job, note(StepState.COMPLETED, tries=2, result="1"), late)
    assert await scene.db.fetch(SHOWN) == [kept]


async def test_progress_goes_forward_only(scene: Scene) -> None:
    """An earlier try and an older attempt never overwrite a newer one; a newer attempt does."""
    worker = await scene.worker()
    first = await scene.one(worker)
    await write(scene, first, note(StepState.RETRYING, tries=2), note(StepState.RUNNING, tries=2))
    assert await scene.db.fetch(SHOWN) == [("retrying", 1, 2)]
    await scene.lose(worker)
    await scene.db.fetch("update holdfast.live_jobs set state = 'available', worker_id = null")
    (second,) = await scene.claim(await scene.worker())
    await write(scene, second, note(StepState.RUNNING, tries=1))
    assert await scene.db.fetch(SHOWN) == [("running", 2, 1)]
    assert await write(scene, first, note(StepState.COMPLETED, tries=9, logged=True)) == {}
    assert await scene.db.fetch(SHOWN) == [("running", 2, 1)]
    assert await scene.db.fetch(CALLS) == []


async def test_a_write_whose_answer_was_lost_logs_its_call_once(scene: Scene) -> None:
    """The worker writes it again; the log has one line for each call all the same."""
    job = await scene.one()
    tried = note(StepState.RETRYING, tries=1, logged=True)
    done = note(StepState.COMPLETED, tries=2, result='"ok"', logged=True)
    await write(scene, job, tried, tried, done, done)
    assert await scene.db.fetch(CALLS) == [(1, None), (2, '"ok"')]


async def test_every_write_of_a_run_is_fenced(scene: Scene) -> None:
    """After the run has ended, and with another attempt's number, nothing is written at all."""
    job = await scene.one()
    await scene.complete(job)
    before = await scene.dump()
    for stale in (fence(job), Fence(job.id, job.attempt + 1)):
        place = Place("main", 0, "x", "child", "{}")
        assert await scene.run(steps.save_steps([(stale, note(StepState.COMPLETED, logged=True))])) == {}
        assert await scene.run(signals.take_signals([Waiter(stale, "main", 0, "go")])) == [None]
        assert await scene.run(children.start_children(stale, place, [])) is None
        assert await scene.run(children.take_children(stale, "main", 0, family=1, count=1, most=9)) is None
        assert await scene.run(blobs.save_blob(stale, b"x")) is None
        assert await scene.run(checkpoints.save_checkpoint(stale, 1, "{}")) is False
        assert not await scene.run(runs.continue_run(stale, "{}", "seed"))
    assert await scene.dump() == before


async def test_a_run_that_was_paused_while_its_worker_died_parks_before_anything_new(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str], lose: Any, rests: Any
) -> None:
    """The attempt that takes it over sees the pause in what it loads."""
    begun = asyncio.Event()

    async def hang() -> None:
        calls.append("hang")
        begun.set()
        if len(calls) == 1:
            await asyncio.Event().wait()

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.step(hang)

    await work(app, ttl=1.0)
    handle = await client.enqueue(plan.job())
    await begun.wait()
    await client.pause(handle.id)
    await lose()
    await rests(handle.id)
    assert calls == ["hang"]
    await client.resume(handle.id)
    await client.wait(handle.id, timeout=20)
    assert calls == ["hang", "hang"]


async def test_everything_of_a_run_is_pruned_with_it_and_nothing_before(
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    db: ThrowawayDatabase,
    scene: Scene,
    probe: Probe,
    eventually: Any,
) -> None:
    """Steps, signals and blobs of a run that lives stay, however old they are; the log of old calls goes."""

    async def picture() -> bytes:
        return b"x" * 10

    @app.workflow
    async def plan(run: holdfast.Run) -> None:
        await run.blob(picture)
        await run.wait_signal("go")
        await run.wait_signal("end")

    process = await work(app)
    old, alive = await client.enqueue_many([plan.job(), plan.job()])
    for handle in (old, alive):
        await client.signal(handle.id, "go")
    await client.signal(old.id, "end")
    await client.wait(old.id, timeout=20)
    # The other one has come as far.
    await eventually(lambda: db.value(AWAITS_ITS_END, alive.id))
    await process.stop(5.0)
    await Clock(db).advance(100 * 86_400)
    tables = ("steps", "signals", "activities", "blobs")

    async def left() -> dict[str, list[Any]]:
        text = "select distinct run_id from holdfast."
        return {table: [row[0] for row in await db.fetch(text + table)] for table in tables}

    assert all(sorted(ids) == [old.id, alive.id] for ids in (await left()).values())
    events = Events(probe)
    leadership = Leadership(db.database, 4.0, lambda: None, events)
    await Pruner(db.database, leadership, MaintenanceConfig(), events).lead(await scene.lead())
    assert await left() == {table: [alive.id] for table in tables} | {"activities": []}


async def test_places_that_look_at_the_same_time_get_a_signal_each(scene: Scene) -> None:
    """Of one run and one name, in the order asked; another run and another name have their own."""
    worker = await scene.worker()
    first, second = await scene.one(worker), await scene.one(worker)
    for run_id, name, payload in ((first.id, "go", "1"), (first.id, "go", "2"), (second.id, "go", "3")):
        await scene.run(signals.send_signal(run_id, name, payload, None))
    waiters = [
        Waiter(fence(second), "main", 0, "go"),
        Waiter(fence(first), "main/a", 0, "go"),
        Waiter(fence(first), "main/b", 0, "stop"),
        Waiter(fence(first), "main/c", 0, "go"),
        Waiter(fence(first), "main/d", 0, "go"),
        Waiter(Fence(first.id, first.attempt + 1), "main/e", 0, "go"),
    ]
    expected = [Taken("[3]"), Taken("[1]"), Taken(None), Taken("[2]"), Taken(None), None]
    assert await scene.run(signals.take_signals(waiters)) == expected
    assert await scene.run(signals.take_signals(waiters)) == expected


async def test_runs_that_load_at_the_same_time_get_their_own_memory(scene: Scene) -> None:
    """In the order asked, and nothing for one that has ended."""
    worker = await scene.worker()
    first, second, third = [await scene.one(worker) for _ in range(3)]
    await write(scene, second, note(StepState.COMPLETED, tries=1, result='"mine"'))
    await scene.complete(third)
    found = await scene.run(steps.load_steps([third.id, second.id, first.id]))
    assert [memory and [step.result for step in memory.steps] for memory in found] == [None, ['"mine"'], []]
