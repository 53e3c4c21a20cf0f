"""Steps: done once, remembered, retried, and their errors met again as they were."""

from datetime import timedelta
from typing import Any

import holdfast
from holdfast.testing import ThrowawayDatabase


async def test_a_run_calls_its_steps_and_returns(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """A workflow is plain code; what its steps returned is recorded place by place."""
    app = holdfast.App()

    async def double(n: int) -> int:
        return 2 * n

    def shout(text: str) -> str:
        return text.upper()

    @app.workflow
    async def plan(run: holdfast.Run, n: int) -> str:
        doubled = await run.step(double, n)
        return await run.step(shout, f"got {doubled}")

    await work(app)
    handle = await client.enqueue(plan.job(n=4))
    assert await client.wait(handle.id, timeout=10) == "GOT 8"
    steps = await client.history(handle.id)
    assert [(one.place, one.name, one.state, one.result) for one in steps] == [
        (0, "double", "completed", 8),
        (1, "shout", "completed", "GOT 8"),
    ]
    assert await db.value("select count(*) from holdfast.attempts") == 0


async def test_a_finished_step_is_not_run_again_after_a_wait(client: holdfast.Client, work: Any) -> None:
    """A run that slept goes on behind the steps it has done; each was called once."""
    app = holdfast.App()
    calls: list[str] = []

    async def note(what: str) -> str:
        calls.append(what)
        return what

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        first = await run.step(note, "first")
        payload = await run.wait_signal("go")
        second = await run.step(note, payload["what"])
        await run.sleep(timedelta(milliseconds=1200))
        return [first, second, await run.step(note, "third")]

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go", {"what": "second"})
    assert await client.wait(handle.id, timeout=20) == ["first", "second", "third"]
    assert calls == ["first", "second", "third"]
    record = await client.job(handle.id)
    assert record.failures == 0
    assert record.attempt >= 2
