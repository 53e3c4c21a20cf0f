"""What a program can do to its jobs: look, cancel, retry; async and sync alike."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.errors import DuplicateJob, JobNotFound, StateConflict
from holdfast.testing import ThrowawayDatabase

REQUEST = JobRequest("greet", '{"name": "Ada"}')
Call = Callable[..., Any]


async def test_a_program_sees_its_job(call: Call, client: holdfast.Client) -> None:
    """The record has the arguments, the state and the timeline."""
    handle = await client.enqueue(REQUEST, tags=["eu"], meta={"k": [1]})
    job = await call("job", handle.id)
    assert (job.id, job.kind, job.state, job.args) == (handle.id, "greet", "available", {"name": "Ada"})
    assert (job.tags, job.meta, job.attempts, job.result) == (["eu"], {"k": [1]}, (), None)
    assert job.created_at.utcoffset() is not None


async def test_a_program_cancels_and_retries_its_job(
    call: Call, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """The reason is kept with the job, and the audit log says that an application did it."""
    handle = await client.enqueue(REQUEST, delay=timedelta(days=1))
    assert await call("cancel", handle.id, reason="too late") is True
    job = await call("job", handle.id)
    assert (job.state, job.reason, job.attempts[0].outcome) == ("cancelled", "too late", "cancelled")
    await call("retry", handle.id)
    assert (await call("job", handle.id)).state == "available"
    acts = await db.fetch("select actor, action, reason from holdfast.audit_log order by id")
    assert acts == [("application", "job.cancel", "too late"), ("application", "job.retry", None)]


async def test_a_program_is_told_why_nothing_was_done(call: Call, client: holdfast.Client) -> None:
    """An unknown job, a state that forbids it and a unique key that is taken have errors of their own."""
    for verb in ("job", "cancel", "retry"):
        with pytest.raises(JobNotFound, match="job 4711 does not exist"):
            await call(verb, 4711)
    first = await client.enqueue(REQUEST, unique_key="one")
    with pytest.raises(StateConflict, match=f"job {first.id} is available: it cannot be retried"):
        await call("retry", first.id)
    await call("cancel", first.id)
    with pytest.raises(StateConflict, match="it cannot be cancelled; it has ended already"):
        await call("cancel", first.id)
    second = await client.enqueue(REQUEST, unique_key="one")
    with pytest.raises(DuplicateJob, match=f"job {second.id} already holds unique key 'one'"):
        await call("retry", first.id)
