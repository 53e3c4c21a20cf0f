"""Inline mode runs each job inside enqueue, with the real client's checks."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import (
    ArtifactNotFound,
    InputInvalid,
    JobNotFound,
    OptionInvalid,
    PayloadTooLarge,
    StateConflict,
    UnknownKind,
)
from holdfast.testing import InlineClient, SyncInlineClient


def in_process(job: holdfast.Job) -> int:
    """A handler at home in a child process."""
    return job.attempt


@pytest.fixture
def app() -> holdfast.App:
    """An application with one kind for each way to end."""
    app = holdfast.App()

    @app.job
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.job
    def in_thread(job: holdfast.Job, name: str) -> str:
        job.progress(0.5, "half")
        job.save_checkpoint({"name": name})
        return f"{job.load_checkpoint()['name']} {job.kind}"

    app.job(executor="process")(in_process)

    @app.job
    async def broken() -> None:
        msg = "no such luck"
        raise ValueError(msg)

    @app.job
    async def tired() -> holdfast.Snooze:
        return holdfast.Snooze(60)

    @app.job
    async def stopped() -> holdfast.Cancel:
        return holdfast.Cancel("not needed")

    @app.job
    async def unstorable() -> Any:
        return object()

    return app


def request(app: holdfast.App, kind: str, **args: Any) -> holdfast.JobRequest:
    """A request by the name of its kind."""
    return app.request(kind, args)


async def test_a_job_has_run_when_enqueue_returns(app: holdfast.App) -> None:
    """The result is there at once, and the client remembers what was asked."""
    async with InlineClient(app) as client:
        handle = await client.enqueue(request(app, "add", a=2), priority=0, tags=["x"])
        assert await client.wait(handle.id) == 3
    (job,) = client.jobs
    assert (job.args, job.request.priority, job.request.tags, job.outcome) == (
        {"a": 2},
        0,
        ["x"],
        "completed",
    )


async def test_many_run_in_order(app: holdfast.App) -> None:
    """The handles come back in the order of the requests."""
    client = InlineClient(app)
    handles = await client.enqueue_many([request(app, "add", a=n) for n in range(3)])
    assert [await client.wait(handle.id) for handle in handles] == [1, 2, 3]


async def test_sync_handlers_run_in_the_callers_thread(app: holdfast.App) -> None:
    """Progress and checkpoints of a handler are kept with its job."""
    client = InlineClient(app)
    handle = await client.enqueue(request(app, "in_thread", name="x"))
    assert await client.wait(handle.id) == "x in_thread"
    assert (client.jobs[0].progress, client.jobs[0].checkpoint) == ([(0.5, "half")], {"name": "x"})
    assert await client.wait((await client.enqueue(request(app, "in_process"))).id) == 1


async def test_options_are_checked_as_by_the_real_client(app: holdfast.App) -> None:
    """A bad option is the same error as with a database, and nothing runs."""
    client = InlineClient(app)
    with pytest.raises(OptionInvalid, match="priority is 10: give a whole number from 0 to 9"):
        await client.enqueue(request(app, "add", a=1), priority=10)
    with pytest.raises(OptionInvalid, match="give either run_at or delay"):
        await client.enqueue_many([request(app, "add", a=1)], delay=1, run_at=datetime.now(UTC))
    assert client.jobs == []


async def test_an_error_of_the_handler_is_raised(app: holdfast.App) -> None:
    """The test sees the handler's own exception, and the job is remembered as one that would be retried."""
    client = InlineClient(app)
    with pytest.raises(ValueError, match="no such luck"):
        await client.enqueue(request(app, "broken"))
    assert (client.jobs[0].outcome, client.jobs[0].reason) == ("retried", "ValueError: no such luck")


async def test_an_error_is_kept_for_wait_where_that_is_asked(app: holdfast.App) -> None:
    """With raises=False the caller meets the error where it would in production."""
    client = InlineClient(app, raises=False)
    handle = await client.enqueue(request(app, "broken"))
    with pytest.raises(holdfast.JobFailed, match="retried: ValueError: no such luck"):
        await client.wait(handle.id)


async def test_a_result_that_cannot_be_stored_fails(app: holdfast.App) -> None:
    """Results meet the same limits as in a worker."""
    client = InlineClient(app)
    with pytest.raises(holdfast.JobFailed, match="the result of 'unstorable' cannot be stored"):
        await client.enqueue(request(app, "unstorable"))


async def test_outcomes_are_remembered(app: holdfast.App) -> None:
    """A snoozed job rests for ever and a cancelled one says why."""
    client = InlineClient(app)
    await client.enqueue(request(app, "tired"), delay=timedelta(days=1))
    cancelled = await client.enqueue(request(app, "stopped"))
    assert [job.outcome for job in client.jobs] == ["snoozed", "cancelled"]
    with pytest.raises(holdfast.JobCancelled, match="not needed"):
        await client.wait(cancelled.id)


async def test_middleware_surrounds_handlers(app: holdfast.App) -> None:
    """Middleware runs as in a worker."""
    seen: list[str] = []

    @app.middleware
    async def note(job: holdfast.Job, call: Any) -> Any:
        seen.append(job.kind)
        return await call()

    await InlineClient(app).enqueue(request(app, "add", a=1))
    assert seen == ["add"]


async def test_what_needs_a_database_is_refused(app: holdfast.App) -> None:
    """A transaction that completes the job is refused with the way out."""

    @app.job
    async def write(job: holdfast.Job) -> None:
        async with job.transaction():
            pass

    with pytest.raises(InputInvalid, match=r"test job.transaction\(\) with drain"):
        await InlineClient(app).enqueue(write.job())


async def test_checkpoints_keep_their_version(app: holdfast.App) -> None:
    """A checkpoint of a newer version is refused as in a worker."""

    @app.job
    async def resume(job: holdfast.Job) -> None:
        await job.save_checkpoint([1], version=2)
        assert await job.load_checkpoint(version=2) == [1]
        await job.load_checkpoint(version=1)

    with pytest.raises(StateConflict, match="newer than this handler's 1"):
        await InlineClient(app).enqueue(resume.job())


async def test_a_checkpoint_is_what_a_worker_would_have_kept(app: holdfast.App) -> None:
    """One that is too large is refused, and what a handler does to what it has loaded is not saved."""

    @app.job(kind="gather")
    async def gather(job: holdfast.Job, size: int) -> Any:
        await job.save_checkpoint(["x" * size])
        (await job.load_checkpoint()).append("y")
        forgotten = job.delete_checkpoint()
        forgotten.close()
        return await job.load_checkpoint()

    client = InlineClient(app)
    assert await client.wait((await client.enqueue(gather.job(1))).id) == ["x"]
    with pytest.raises(PayloadTooLarge, match=r"checkpoint: 1,048,5\d\d bytes"):
        await client.enqueue(gather.job(1024 * 1024))


async def test_unknown_kinds_and_jobs_are_named(app: holdfast.App) -> None:
    """What the app does not know cannot run here, and of several jobs none runs."""
    client = InlineClient(app)
    other = holdfast.App()

    @other.job
    async def alien() -> None: ...

    with pytest.raises(UnknownKind, match="'alien'"):
        await client.enqueue(alien.job())
    with pytest.raises(UnknownKind, match="'alien'"):
        await client.enqueue_many([request(app, "add", a=1), alien.job()])
    assert client.jobs == []
    with pytest.raises(JobNotFound):
        await client.wait(1)


async def test_log_lines_reach_the_logging_module(
    app: holdfast.App, caplog: pytest.LogCaptureFixture
) -> None:
    """A test reads a handler's lines where it reads all others."""

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("hello")

    caplog.set_level(logging.INFO, "holdfast.job")
    await InlineClient(app).enqueue(talk.job())
    assert caplog.messages == ["hello"]


async def test_acts_on_jobs_follow_the_real_rules(app: holdfast.App) -> None:
    """Cancel and retry are allowed in the states in which the real client allows them."""
    client = InlineClient(app, raises=False)
    broken = (await client.enqueue(request(app, "broken"), max_attempts=2)).id
    record = await client.job(broken)
    assert (record.state, record.attempt, record.failures) == ("scheduled", 1, 1)
    await client.retry(broken)
    record = await client.job(broken)
    assert (record.state, record.attempt, record.failures) == ("failed", 2, 2)
    with pytest.raises(StateConflict, match="job 1 is failed: it cannot be cancelled"):
        await client.cancel(broken)
    tired = (await client.enqueue(request(app, "tired"))).id
    assert await client.cancel(tired, reason="enough")
    with pytest.raises(holdfast.JobCancelled, match="enough"):
        await client.wait(tired)
    done = (await client.enqueue(request(app, "add", a=1))).id
    with pytest.raises(StateConflict, match="enqueue it anew"):
        await client.retry(done)


def test_jobs_run_inline_without_asyncio(app: holdfast.App) -> None:
    """A sync application has the same mode, also where a handler enqueues."""
    client = SyncInlineClient(app)

    @app.job
    def chain(n: int) -> int:
        return n if n == 0 else int(client.wait(client.enqueue(chain.job(n - 1)).id)) + 1

    with client:
        assert client.wait(client.enqueue(chain.job(3)).id) == 3
        assert [client.wait(one.id) for one in client.enqueue_many([request(app, "add", a=1)])] == [2]
        with pytest.raises(ValueError, match="no such luck"):
            client.enqueue(request(app, "broken"))
    assert [job.outcome for job in client.jobs] == ["completed"] * 5 + ["retried"]


def test_sync_handlers_run_inline_without_a_loop(app: holdfast.App) -> None:
    """As in a worker: it may run one of its own, use what refuses to work beside one, and enqueue."""
    client, tenant = SyncInlineClient(app), ContextVar("tenant", default="nobody")

    @app.middleware
    async def choose(_job: holdfast.Job, call: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(0)
        tenant.set("ada")
        return await call()

    @app.job
    async def ask() -> str:
        return tenant.get()

    @app.job
    def visit(further: bool) -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        if further:
            return client.wait(client.enqueue(visit.job(False)).id)
        return threading.get_ident(), tenant.get(), asyncio.run(asyncio.sleep(0, "slept"))

    @app.job
    def wander() -> None:
        raise StopIteration

    here = [threading.get_ident(), "ada", "slept"]
    assert client.wait(client.enqueue(visit.job(True)).id) == here
    assert client.wait(client.enqueue(ask.job()).id) == "ada"
    assert tenant.get() == "nobody"
    with pytest.raises(InputInvalid, match="test runs with drain"):
        client.run(1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        client.enqueue(wander.job())


def test_no_file_is_left_inline(app: holdfast.App) -> None:
    """Only runners leave files: a job has none, an unknown one is refused as by the real client."""
    client = SyncInlineClient(app)
    job_id = client.enqueue(request(app, "add", a=1)).id
    assert client.artifacts(job_id) == []
    with pytest.raises(JobNotFound):
        client.artifacts(job_id + 1)
    with pytest.raises(ArtifactNotFound, match="report"):
        client.artifact(job_id, 1, "report.txt")


@pytest.mark.parametrize(
    ("stand_in", "real"), [(InlineClient, holdfast.Client), (SyncInlineClient, holdfast.SyncClient)]
)
def test_a_stand_in_has_the_verbs_of_the_real_client(stand_in: type, real: type) -> None:
    """Code under test can call whatever it calls in production."""
    verbs = [{name for name in dir(one) if not name.startswith("_")} for one in (stand_in, real)]
    assert verbs[1] <= verbs[0]


async def test_wrong_options_are_the_real_clients_errors(app: holdfast.App) -> None:
    """A slip of the pen is named, in a call or in one request of many; options of one's own hold."""
    client, add = InlineClient(app), app.handlers["add"]
    with pytest.raises(OptionInvalid, match="prio is 1: there is no such option here"):
        await client.enqueue(add.job(1), prio=1)  # type: ignore[call-arg]
    with pytest.raises(InputInvalid, match="enqueue_many takes a list"):
        await client.enqueue_many(add.job(1))  # type: ignore[arg-type]
    handles = await client.enqueue_many([add.job(1).with_options(priority=2), add.job(2)], priority=7)
    assert [(await client.job(handle.id)).priority for handle in handles] == [2, 7]
