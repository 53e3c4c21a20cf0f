"""A job meets its worker: results, errors, timeouts, outcomes."""

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe, ThrowawayDatabase


async def test_a_result_comes_back(client: holdfast.Client, work: Any) -> None:
    """What a handler returns is what the client's wait answers."""
    app = holdfast.App()

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    await work(app)
    handle = await client.enqueue(add.job(2, 3))
    assert await client.wait(handle.id, timeout=10) == 5


async def test_a_delayed_job_waits_for_its_time(client: holdfast.Client, work: Any, probe: Probe) -> None:
    """A job with a delay is staged by the leader, then runs."""
    app = holdfast.App()

    @app.job
    async def ping() -> str:
        return "pong"

    await work(app)
    handle = await client.enqueue(ping.job(), delay=timedelta(milliseconds=300))
    assert await client.wait(handle.id, timeout=10) == "pong"
    assert probe.seen("jobs.staged")


async def test_an_error_is_retried_until_attempts_are_exhausted(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """Each error is one attempt with its text; the last one fails the job."""
    app = holdfast.App()

    @app.job(max_attempts=3, retry=holdfast.Constant(timedelta(milliseconds=10)))
    async def broken() -> None:
        msg = "no such luck"
        raise RuntimeError(msg)

    await work(app)
    handle = await client.enqueue(broken.job())
    with pytest.raises(
        holdfast.JobFailed, match=r"attempts exhausted \(3 of 3\): RuntimeError: no such luck"
    ):
        await client.wait(handle.id, timeout=20)
    rows = await db.fetch("select attempt, outcome, reason from holdfast.attempts order by attempt")
    assert rows == [(n, "retried", "RuntimeError: no such luck") for n in (1, 2)]


async def test_a_handler_may_be_registered_again(client: holdfast.Client, work: Any) -> None:
    """Under another kind, and in another application, it runs where its function runs."""
    library, app = holdfast.App(), holdfast.App()

    @library.job(kind="first")
    async def double(number: int) -> int:
        return 2 * number

    @library.workflow(kind="first run")
    async def tell(_run: holdfast.Run, number: int) -> int:
        return number

    again: list[Any] = [app.job(double), app.job(kind="second")(double), app.workflow(kind="run")(tell)]
    assert [one.executor for one in again] == ["loop"] * 3
    await work(app)
    handles = await client.enqueue_many([one.job(4) for one in again])
    assert [await client.wait(handle.id, timeout=10) for handle in handles] == [8, 8, 4]
