"""Runs that meet what is odd: errors that cannot be told, waits that are cut off, rows that others refuse."""

from __future__ import annotations

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
