"""Random programs: whatever happens to their runs, they come to what plain Python comes to."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.workflow.perils import Crew, Perils, beset
from tests.workflow.programs import ROOT, Log, Program, Told, application, expected, programs, signals

TWICE = """
    select run_id, branch, place from holdfast.signals where place is not null
    group by run_id, branch, place having count(*) > 1
"""
numbers = st.integers(1, 80)
calm = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@dataclass
class Ground:
    """Where the programs of a test are played."""

    db: ThrowawayDatabase
    client: holdfast.Client
    patch: pytest.MonkeyPatch


@pytest.fixture
async def ground(db: ThrowawayDatabase, client: holdfast.Client, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """A schema with a table for the rows that steps write."""
    await db.fetch("create table holdfast.rows (path text)")
    return Ground(db, client, monkeypatch)


@settings(calm, max_examples=20)
@given(program=programs)
async def test_a_run_comes_to_what_plain_python_comes_to(ground: Ground, program: Program) -> None:
    """Nothing dies, and signals come when they are waited for."""
    await _played(ground, program, {}, [])


@settings(calm, max_examples=60)
@given(
    program=programs,
    deaths=st.dictionaries(numbers, st.booleans(), max_size=4),
    moments=st.lists(st.integers(0, 80), max_size=4),
)
async def test_deaths_and_signals_at_any_statement_change_nothing(
    ground: Ground, program: Program, deaths: dict[int, bool], moments: list[int]
) -> None:
    """The worker dies before or after statements of its own, and signals come in between or at once."""
    await _played(ground, program, deaths, moments)


@pytest.mark.soak
@settings(calm, max_examples=3000)
@given(
    program=programs,
    deaths=st.dictionaries(numbers, st.booleans(), max_size=8),
    moments=st.lists(st.integers(0, 80), max_size=6),
)
@pytest.mark.timeout(3600)
async def test_many_programs_come_to_what_plain_python_comes_to(
    ground: Ground, program: Program, deaths: dict[int, bool], moments: list[int]
) -> None:
    """The same, for longer."""
    await _played(ground, program, deaths, moments)


async def _played(ground: Ground, program: Program, deaths: dict[int, bool], moments: list[int]) -> None:
    """Play a program beset by perils, and hold what came of it against the model."""
    log = Log(ground.db.schema)
    app, play = application(log)
    run_id = (await ground.client.enqueue(play.job(program=program, path=ROOT))).id

    async def send(name: str) -> None:
        await ground.client.signal(run_id, name, name, key=name)

    coming = dict(zip(moments, signals(program), strict=False))
    if 0 in coming:
        await send(coming.pop(0))
    perils = Perils(dict(deaths), coming, send)
    with ground.patch.context() as patch:
        beset(patch, perils)
        await Crew(app, ground.db, ground.client).go_on()
    await asyncio.gather(*perils.sending)
    told = expected(program)
    await _check_end(ground, run_id, told)
    await _check_steps(ground.db, told, log)
    for table in ("steps", "activities", "signals", "rows"):
        await ground.db.fetch(f"truncate holdfast.{table}")


async def _check_end(ground: Ground, run_id: int, told: Told) -> None:
    if told.failed:
        with pytest.raises(holdfast.JobFailed):
            await ground.client.wait(run_id, timeout=5)
    else:
        assert await ground.client.wait(run_id, timeout=5) == told.result
    assert await ground.db.fetch("select * from holdfast.suspensions") == []
    assert await ground.db.fetch(TWICE) == []


async def _check_steps(db: ThrowawayDatabase, told: Told, log: Log) -> None:
    """Each step has ended once, was not called after that, and the log of calls says so."""
    ended = await db.fetch("select run_id, name, attempt, state from holdfast.steps where kind = 'step'")
    assert {state for _, _, _, state in ended} <= {"completed", "failed"}
    assert told.must <= {name for _, name, _, _ in ended} <= told.must | told.may
    for run, name, attempt, _ in ended:
        assert [call for call in log.calls if (call[0], call[2]) == (run, name) and call[1] > attempt] == []
    lines = await db.fetch("select run_id, step, attempt, error is null from holdfast.activities order by id")
    calls = Counter(log.calls)
    logged = Counter((run, attempt, step) for run, step, attempt, _ in lines)
    assert logged <= calls, "a line tells of a call that was not made"
    successes = sorted((run, step, attempt) for run, step, attempt, success in lines if success)
    assert successes == sorted(step[:3] for step in ended if step[3] == "completed")
    rows = Counter(path for (path,) in await db.fetch("select path from holdfast.rows"))
    assert set(rows.values()) <= {1}
    assert set(rows) <= {name for _, name, _, state in ended if state == "completed"}
    assert all(len(ids) == 1 for ids in log.values.values())
