"""What is done for many at once costs each of them no more: nobody is compared with all others."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.activity import ActivityNote
from holdfast.model.outcome import Complete, Outcome, PutBack
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.store import activities, attempts, logs, signals, steps
from holdfast.store.attempts import Demand, Ended, Fence, Returned
from holdfast.store.database import Connection
from holdfast.store.logs import LogLine
from holdfast.store.signals import Waiter
from holdfast.store.sqlfile import rendered
from holdfast.store.statement import Statement
from tests.store.scene import KIND, Scene, fence
from tests.store.test_plans import nodes

MANY = 300
# Each passes through some parts of a plan; were each compared with half of the others, it would be 45,000.
MOST = 40 * MANY
ROWS = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")


def with_heirs(held: list[Fence]) -> Statement[list[int]]:
    """The first half ends, and hands its permits on to the second."""
    half = len(held) // 2
    return attempts.finish_jobs(
        [
            Ended(one, Complete(), 0.01, KIND, heir, 1.0)
            for one, heir in zip(held[:half], held[half:], strict=True)
        ]
    )


STEP = StepNote(
    branch="",
    place=1,
    name="step",
    kind=StepKind.STEP,
    state=StepState.COMPLETED,
    tries=1,
    seconds=0.0,
    result="1",
    shown="1",
    parameters="[]",
)
CALL = ActivityNote(
    step="step", branch="", place=1, tried=1, parameters="[]", result="1", error=None, ago=0.0, seconds=0.0
)
SENT = """
    insert into holdfast.signals (run_id, name, payload, sent_at)
    select job_id, 'go', '1', now() from holdfast.live_jobs
"""
NOW = datetime(2026, 11, 28, tzinfo=UTC)

BATCHES: dict[str, Callable[[list[Fence]], Statement[Any]]] = {
    "finish_jobs": with_heirs,
    "complete_jobs": lambda held: attempts.complete_jobs([Ended(one, Complete()) for one in held]),
    "put_back_jobs": lambda held: attempts.put_back_jobs(
        [Returned(one, PutBack(Outcome.RETRIED, 1.0, counts=True, reason="no")) for one in held]
    ),
    "start_jobs": lambda held: attempts.start_jobs([(one, 0.0) for one in held]),
    "append_logs": lambda held: logs.append_logs([LogLine(one, 0, NOW, "info", "a line") for one in held]),
    "append_activities": lambda held: activities.append_activities([(one, CALL) for one in held]),
    "save_steps": lambda held: steps.save_steps([(one, STEP) for one in held]),
    "take_signals": lambda held: signals.take_signals([Waiter(one, "", 1, "go") for one in held]),
}


def literal(value: Any) -> str:
    """A parameter as SQL has it."""
    if isinstance(value, list):
        return f"array[{', '.join(map(literal, value))}]::text[]"
    return "null" if value is None else f"'{value}'"


async def handled(session: Connection, name: str, text: str, *parameters: Any) -> int:
    """Run a statement by the plan for any number of rows; answers how many passed through its parts."""
    await session.execute(f"prepare {name} as {text}")
    execute = f"execute {name} ({', '.join(map(literal, parameters))})"
    shown = json.loads(await session.fetchval(f"explain (analyze, timing off, format json) {execute}"))
    passed = 0
    for node in nodes(shown[0]["Plan"]):
        passed += int(node["Actual Loops"] * sum(node.get(rows, 0) for rows in ROWS))
    return passed


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
@pytest.mark.parametrize("name", BATCHES)
async def test_nobody_is_compared_with_everybody(scene: Scene, name: str, version: int) -> None:
    """Whatever is held is looked up by index, and what a statement has found itself by hash."""
    await scene.enqueue(MANY)
    claimed = await scene.claim(await scene.worker(), limit=MANY, free=0 if name == "start_jobs" else None)
    assert len(claimed) == MANY
    await scene.db.fetch("update holdfast.live_jobs set ahead = job_id > $1", MANY // 2)
    await scene.db.fetch(SENT)
    session = await scene.session()
    assert session.get_server_version().major == version
    statement = BATCHES[name]([fence(job) for job in claimed])
    text = rendered(statement.text, scene.db.schema)
    assert await handled(session, name, text, *statement.parameters) < MOST


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_bundle_is_taken_apart_without_comparing_each_with_each(scene: Scene, is_named: bool) -> None:
    """There may be thousands in it: to look each up among all of them took most of a second."""
    ids = await scene.enqueue(MANY)
    demand = Demand(worker_id=await scene.worker(), queues=("default",), kinds=(KIND,), limit=MANY, free=0)
    await scene.run(attempts.claim_bundled(demand, (KIND,)))
    text = await scene.db.value(
        "select prosrc from pg_proc where oid = $1::regproc", f'"{scene.db.schema}".untie'
    )
    text = text.replace("(bundle_ids)", "($1::text::bigint[])")
    text = text.replace("(wanted is", "($2::text::bigint[] is").replace("(wanted)", "($2::text::bigint[])")
    bundle = await scene.db.value("select id from holdfast.bundles")
    named = "{" + ",".join(map(str, ids)) + "}" if is_named else None
    assert await handled(await scene.session(), "untie", text, f"{{{bundle}}}", named) < MOST
    assert await scene.db.value("select count(*) from holdfast.live_jobs") == MANY
