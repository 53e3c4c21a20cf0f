"""Jobs for runners that nobody enqueues by hand: children of runs, and jobs of schedules."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.maintenance.scheduler import Scheduler
from tests.runners.conftest import Yard

PLACED = "select labels, runner, on_loss from holdfast.placements order by job_id"


async def test_children_may_ask_for_runners(yard: Yard, work: Any) -> None:
    """Those with labels go to a runner, with what they ask; others stay with the workers."""
    app = holdfast.App()

    @app.workflow
    async def build(run: holdfast.Run) -> list[Any]:
        one = await run.child(holdfast.command("make"), labels=["gpu"], runner="build-1", on_loss="hold")
        rest = await run.children([holdfast.command("true"), holdfast.command("false")], labels=["gpu"])
        return [one, *rest]

    await work(app)
    machine = await yard.machine(labels=["gpu"])
    handle = await yard.client.enqueue(build.job())
    for number in range(3):
        [offer] = await machine.claim(wait=20)
        await machine.start(offer)
        await machine.finish(offer, result=number)
    assert await yard.client.wait(handle.id, timeout=20) == [0, 1, 2]
    placed = await yard.db.fetch(PLACED)
    assert placed == [(["gpu"], "build-1", "hold"), (["gpu"], None, "retry"), (["gpu"], None, "retry")]


async def test_a_schedule_keeps_what_it_can_of_a_requests_own_options() -> None:
    """The queue and what else it has a place for; a key would be lost, so it is refused."""
    request = holdfast.command("make").with_options(queue="own", priority=1, timeout=7, labels=["gpu"])
    schedule = holdfast.App().schedule("nightly", request, every=timedelta(hours=1), on_loss="fail")
    assert (schedule.queue, schedule.priority) == ("own", 1)
    kept = json.loads(schedule.options)
    assert (kept["timeout"], kept["placement"]["labels"], kept["placement"]["on_loss"]) == (
        7,
        ["gpu"],
        "fail",
    )
    for option in ("concurrency_key", "unique_key"):
        asked = request.with_options(**{option: "k"})  # type: ignore[arg-type]
        with pytest.raises(holdfast.OptionInvalid, match=f"{option} is 'k': there is no such option here"):
            holdfast.App().schedule("nightly", asked, every=timedelta(hours=1))


async def test_schedules_may_ask_for_runners(yard: Yard) -> None:
    """A tick's job, and one that an operator runs by hand, are for the runners that the schedule names."""
    schedule = holdfast.App().schedule(
        "nightly", holdfast.command("make"), every=timedelta(hours=1), labels=["gpu"], on_loss="fail"
    )
    scheduler = yard.duty(Scheduler)
    await scheduler.store([schedule])
    await yard.db.fetch("update holdfast.schedules set next_tick_at = next_tick_at - interval '1 hour'")
    await scheduler.lead(await yard.lead())
    await Operator(yard.db.database, "ada").schedules.run("nightly")
    assert await yard.db.fetch(PLACED) == [(["gpu"], None, "fail"), (["gpu"], None, "fail")]
    assert await (await yard.machine(labels=["cpu"], slots=2)).claim(2) == []
    assert len(await (await yard.machine("build-2", labels=["gpu"], slots=2)).claim(2)) == 2
