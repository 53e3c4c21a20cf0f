"""What a handler sets in its context ends with its attempt."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_context_variable_does_not_reach_the_next_job_of_the_slot(
    client: holdfast.Client, work: Any, probe: Probe, waits: bool
) -> None:
    """A tenant that one handler set, or a request that its library noted, is not there for the next one."""
    app = holdfast.App()

    @app.job
    async def choose(tenant: str) -> str:
        before = TENANT.get()
        TENANT.set(tenant)
        if waits:
            await asyncio.sleep(0)
        return f"{before}, then {TENANT.get()}"

    await work(app, slots=1)
    handles = await client.enqueue_many([choose.job(name) for name in ("ada", "bob", "cyd")])
    results = [await client.wait(handle.id, timeout=10) for handle in handles]
    assert results == ["nobody, then ada", "nobody, then bob", "nobody, then cyd"]
    assert len(probe.seen("attempt.started")) == 3
