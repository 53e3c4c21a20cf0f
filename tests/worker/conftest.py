"""The same handler in every executor."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.worker import handlers

PARTITIONS = """
select holdfast.make_partition(parent, ((holdfast.now() at time zone 'UTC')::date + ahead))
from unnest(array['finished_completed', 'finished_unhappy', 'job_logs']) as parent,
     generate_series(0, 3) as ahead
"""


@pytest.fixture
async def db(db: ThrowawayDatabase) -> ThrowawayDatabase:
    """A database whose partitions are made: these tests read history while the leader would make them."""
    await db.fetch(PARTITIONS)
    return db


EXECUTORS = ("loop", "thread", "process")


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    """Each executor in turn."""
    return str(request.param)


Single = Callable[..., holdfast.App]
Run = Callable[..., Any]


@pytest.fixture
def run(client: holdfast.Client) -> Run:
    """Enqueues kind "it" and waits for its result: ``await run(app, a=1)``."""

    async def go(app: holdfast.App, **args: Any) -> Any:
        handle = await client.enqueue(app.request("it", args))
        return await client.wait(handle.id, timeout=30)

    return go


@pytest.fixture
def cancel(db: ThrowawayDatabase) -> Run:
    """Asks for the cancel of a running job: ``await cancel(job_id)``."""

    async def ask(job_id: int) -> None:
        told = await db.value(
            "update holdfast.live_jobs set cancel_requested_at = holdfast.now() where job_id = $1 "
            "returning pg_notify('holdfast', 'cancel:' || worker_id)::text",
            job_id,
        )
        assert told is not None

    return ask


@pytest.fixture
def single(executor: str) -> Single:
    """An app with one handler, kind "it", in the executor: ``single(handlers.add, max_attempts=2)``."""

    def make(function: Callable[..., Any], **options: Any) -> holdfast.App:
        app = holdfast.App()
        options = {"retry": handlers.SOON} | options
        app.job(kind="it", executor=executor, **options)(_fitting(function, executor))
        return app

    return make


def _fitting(function: Callable[..., Any], executor: str) -> Callable[..., Any]:
    """The function itself for threads and processes; on the loop its async twin, or a thin wrap."""
    if executor != "loop":
        return function
    twin = getattr(handlers, f"{function.__name__}_on_loop", None)
    if twin is not None:
        return twin  # type: ignore[no-any-return]

    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert inspect.iscoroutinefunction(wrapped)
    return wrapped
