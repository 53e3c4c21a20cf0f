"""Runs that meet what is odd: errors that cannot be told, waits that are cut off, rows that others refuse."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

SOON = holdfast.Constant(timedelta(milliseconds=10))


async def echo(what: Any) -> Any:
    """A step."""
    return what


class Garbled(Exception):
    """An error whose looks no database can keep."""

    def __repr__(self) -> str:
        return "\x00\ud800"

    def __str__(self) -> str:
        return "\x00\ud800" * 300_000


class Mute(Exception):
    """An error that cannot be looked at."""

    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("kind", [Garbled, Mute])
async def test_a_run_is_kept_whatever_its_new_code_raises(
    db: ThrowawayDatabase,
    client: holdfast.Client,
    work: Any,
    app: holdfast.App,
    rests: Any,
    eventually: Any,
    kind: type[Exception],
) -> None:
    """The reason for which it is kept can always be written: no other run waits for it, and none fails."""
    broken = False

    @app.workflow(max_attempts=1)
    async def plan(run: holdfast.Run) -> Any:
        if broken:
            raise kind("too early")
        await run.step(echo, 1)
        return await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    broken = True
    await client.signal(handle.id, "go", "gone")
    kept = "select reason from holdfast.suspensions where run_id = $1 and reason like 'NonDeterministicRun%'"
    reason = await eventually(lambda: db.value(kept, handle.id))
    assert kind.__name__ in reason
    assert len(reason) < 3000
    broken = False
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == "gone"


async def refuse(db: ThrowawayDatabase, table: str, what: str, code: str) -> None:
    """Have a trigger of somebody else object to rows of a table."""
    await object_if(db, what, code)
    await db.fetch(
        f"create trigger objection before insert on holdfast.{table} "
        "for each row execute function holdfast.objection()"
    )


async def object_if(db: ThrowawayDatabase, what: str, code: str) -> None:
    """Say what the trigger objects to; unlike to drop it, this waits for no lock that a worker holds."""
    await db.fetch(
        "create or replace function holdfast.objection() returns trigger language plpgsql as $$ begin "
        f"if {what} then raise exception 'not in this house' using errcode = '{code}'; end if; "
        "return new; end $$"
    )


@pytest.mark.parametrize("code", ["P0001", "01999"])
async def test_a_step_that_somebody_elses_trigger_refuses_ends_its_attempt(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, app: holdfast.App, code: str
) -> None:
    """Whatever the database says to a record, its run hears of it, and other runs go on."""
    await refuse(db, "steps", "new.name = 'bad'", code)

    @app.workflow(max_attempts=2, retry=SOON)
    async def plan(run: holdfast.Run, name: str) -> str:
        return await run.step(echo, "done", name=name)

    await work(app)
    bad = await client.enqueue(plan.job("bad"))
    with pytest.raises(holdfast.JobFailed, match="not in this house"):
        await client.wait(bad.id, timeout=10)
    assert await client.wait((await client.enqueue(plan.job("good"))).id, timeout=10) == "done"


async def test_an_end_that_somebody_elses_trigger_refuses_holds_up_no_other(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, app: holdfast.App, probe: Any
) -> None:
    """It is tried again on its own until the trigger objects no longer."""
    await refuse(db, "finished_jobs", "new.kind = 'bad'", "P0001")

    @app.job
    async def bad() -> str:
        return "bad"

    @app.job
    async def good() -> str:
        return "good"

    await work(app)
    handle = await client.enqueue(bad.job())
    await probe.wait_for("report.delayed")
    assert await client.wait((await client.enqueue(good.job())).id, timeout=10) == "good"
    await object_if(db, "false", "P0001")
    with pytest.raises(holdfast.JobFailed, match=r"could not be stored.*not in this house"):
        await client.wait(handle.id, timeout=20)


@pytest.mark.parametrize("what", ["wait", "step"])
async def test_what_the_code_itself_cuts_off_is_its_own_affair(
    client: holdfast.Client, work: Any, app: holdfast.App, what: str
) -> None:
    """A timeout of asyncio that comes while the run is in memory is caught like any other error."""

    @app.workflow(max_attempts=1)
    async def plan(run: holdfast.Run) -> str:
        try:
            async with asyncio.timeout(0.1):
                await (run.wait_signal("go", timeout=0.9) if what == "wait" else run.step(asyncio.sleep, 30))
        except TimeoutError:
            return await run.step(echo, "late")
        return "in time"

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == "late"


async def test_a_branch_that_does_not_fit_keeps_its_run_while_another_one_asks(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, app: holdfast.App, rests: Any, eventually: Any
) -> None:
    """The other branch, whose question is under way, does not wait for an answer that nobody would give."""
    name = "old"

    async def nag(run: holdfast.Run) -> None:
        await run.step(echo, 1, name=name)
        await run.wait_signal("never")

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        async with run.branches() as branches:
            branches.start("nag", nag(run))
            await run.wait_signal("go")

    await work(app)
    handle = await client.enqueue(plan.job())
    await rests(handle.id)
    name = "new"
    await db.fetch("select holdfast.send_signal($1::bigint, 'never')", handle.id)
    kept = "select reason from holdfast.suspensions where run_id = $1 and reason like 'NonDeterministicRun%'"
    await eventually(lambda: db.value(kept, handle.id), timeout=8)
