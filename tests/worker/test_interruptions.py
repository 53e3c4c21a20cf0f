"""Handlers that are stopped: by their timeout, a cancel, a lost lease or the end of their worker."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.errors import DatabaseUnavailable
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import claimer
from holdfast.worker.executors import Executors
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.running import Running
from tests.worker import handlers

REFUSED = "progress:LeaseLost save:LeaseLost delete:LeaseLost transaction:LeaseLost check:LeaseLost"
ATTEMPTS = "select attempt, outcome, reason from holdfast.attempts order by attempt"
STATE = "select state from holdfast.live_jobs"


@pytest.fixture
def begun(eventually: Any, tmp_path: Path) -> Any:
    """Waits until `handlers.hold` has begun; answers the process it runs in."""

    async def wait() -> int:
        await eventually(lambda: asyncio.to_thread(lambda: _text(tmp_path / "begun")))
        return int(_text(tmp_path / "begun"))

    return wait


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def _came_to_an_end(executor: str, pid: int, folder: Path, eventually: Any) -> None:
    """Check what is left of a handler that was stopped: nothing, or a thread whose wishes are refused."""
    if executor == "process":
        await eventually(lambda: asyncio.to_thread(_is_gone, pid))
        assert not (folder / "came").exists()
    elif executor == "loop":
        assert _text(folder / "came") == "over"
    else:
        (folder / "go").touch()
        await eventually(lambda: asyncio.to_thread(_text, folder / "came"))
        assert _text(folder / "came") == REFUSED


async def test_a_timeout_ends_the_attempt(
    executor: str,
    single: Any,
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    begun: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """The attempt is counted as a failure, the handler is stopped, and the next attempt runs."""
    app = single(handlers.hold)
    await work(app, slots=2)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}), timeout=0.5)
    pid = await begun()
    assert await client.wait(job.id, timeout=30) == "later"
    assert await db.fetch(ATTEMPTS) == [(1, "retried", "timed out after 0.5 s")]
    await _came_to_an_end(executor, pid, tmp_path, eventually)


async def test_an_abandoned_thread_keeps_its_slot(
    work: Any, client: holdfast.Client, db: ThrowawayDatabase, begun: Any, eventually: Any, tmp_path: Path
) -> None:
    """Until the handler that timed out returns, its slot takes nothing else; then it does, at once."""
    app = holdfast.App()
    app.job(kind="it", retry=handlers.SOON)(handlers.hold)
    process = await work(app, slots=1, poll=60)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}), timeout=0.2)
    await begun()
    await eventually(lambda: db.value("select true from holdfast.live_jobs where state = 'available'"))
    # A claim that had room would take it: the queue notifies, and this look comes on top.
    await process.worker.claimer.turn()
    assert await db.value(STATE) == "available"
    assert process.worker.slots.busy == 1
    (tmp_path / "go").touch()
    assert await client.wait(job.id, timeout=30) == "later"


async def test_a_cancel_stops_a_running_handler(
    executor: str,
    single: Any,
    work: Any,
    client: holdfast.Client,
    cancel: Any,
    begun: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """On the loop and in a process the handler is stopped; a thread is told, and its answer counts."""
    app = single(handlers.hold if executor != "thread" else handlers.answer_cancel)
    await work(app, poll=60)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    if executor == "thread":
        await eventually(lambda: asyncio.to_thread((tmp_path / "begun").exists))
    else:
        pid = await begun()
    await cancel(job.id)
    reason = "stopped in good order" if executor == "thread" else "cancel requested; the handler was stopped"
    with pytest.raises(holdfast.JobCancelled, match=reason):
        await client.wait(job.id, timeout=20)
    if executor != "thread":
        await _came_to_an_end(executor, pid, tmp_path, eventually)


@pytest.fixture
def held_up(work: Any) -> Any:
    """A worker with a lease so long that no renewal looks for cancels, and a kind that waits: "it"."""

    async def start() -> Any:
        return await work(app, slots=1, poll=60, ttl=600.0)

    app = holdfast.App()

    @app.job(kind="it")
    async def wait() -> None:
        await asyncio.Event().wait()

    return start


async def test_a_cancel_is_looked_for_again_that_the_database_could_not_be_asked_for(
    held_up: Any, client: holdfast.Client, cancel: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be away for a moment."""
    worker, run, asked = (await held_up()).worker, Database.run, list[str]()

    async def away_once(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        if statement.name == "cancel_requests":
            asked.append(statement.name)
            if len(asked) == 1:
                raise DatabaseUnavailable("it is away")
        return await run(database, statement, *rest)

    job = await client.enqueue(JobRequest("it", "{}"))
    await eventually(lambda: asyncio.sleep(0, worker.held.running))
    # The look of the start is over.
    await eventually(lambda: asyncio.sleep(0, worker.attention._asked == worker.attention._answered))
    monkeypatch.setattr(Database, "run", away_once)
    await cancel(job.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(job.id, timeout=20)
    assert len(asked) > 1


async def test_a_cancel_that_comes_before_the_answer_of_the_claim_is_heard(
    held_up: Any,
    client: holdfast.Client,
    cancel: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The claim is committed, so the worker is told, but does not know of the job yet."""
    worker, run, claims = (await held_up()).worker, Database.run, list[int]()

    async def late(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        answer = await run(database, statement, *rest)
        if statement.name in ("claim_announced", "claim_jobs") and answer:
            claims.append(answer[0].id)
            told = worker.attention.turned_at
            await cancel(answer[0].id)
            await eventually(lambda: asyncio.sleep(0, worker.attention.turned_at > told))
        return answer

    monkeypatch.setattr(Database, "run", late)
    job = await client.enqueue(JobRequest("it", "{}"))
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(job.id, timeout=20)
    assert claims == [job.id]


@pytest.mark.parametrize("cause", ["a cancel", "a lost lease"])
async def test_who_is_stopped_while_its_beginning_is_recorded_does_not_begin(
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    cancel: Any,
    lose: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    cause: str,
) -> None:
    """A job that may have ended a worker begins once that is written, and much may happen meanwhile."""
    monkeypatch.setattr(Prefetch, "measure", lambda self: setattr(self, "room", 1))
    monkeypatch.setattr(claimer, "STALE", 60.0)
    app, go, begun, note = holdfast.App(), asyncio.Event(), list[int](), Executors.note_begun

    @app.job
    async def first() -> None:
        await go.wait()

    @app.job
    async def suspect(job: holdfast.Job) -> None:
        begun.append(job.attempt)

    worker = (await work(app, slots=1, ttl=600.0 if cause == "a cancel" else 1.0)).worker
    await client.enqueue(first.job())
    await eventually(lambda: asyncio.sleep(0, worker.held.running))
    job = await client.enqueue(suspect.job(), delay=0.2)
    await db.fetch("update holdfast.live_jobs set suspect = true where job_id = $1", job.id)

    async def late(executors: Executors, running: Running) -> bool:
        known = await note(executors, running)
        monkeypatch.setattr(Executors, "note_begun", note)
        await (cancel(job.id) if cause == "a cancel" else lose())
        await eventually(lambda: asyncio.sleep(0, running.cause))
        return known

    monkeypatch.setattr(Executors, "note_begun", late)
    await eventually(lambda: asyncio.sleep(0, len(worker._buffer) == 1))
    go.set()
    if cause == "a cancel":
        with pytest.raises(holdfast.JobCancelled):
            await client.wait(job.id, timeout=20)
        assert begun == []
    else:
        await client.wait(job.id, timeout=20)
        assert begun == [2]


async def test_a_lost_lease_stops_the_handler_and_the_job_runs_again(
    executor: str,
    single: Any,
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    lose: Any,
    begun: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """Once the worker learns that it was declared lost, nothing of the stale attempt goes on or is kept."""
    app = single(handlers.hold)
    await work(app, slots=2, ttl=1.0)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    pid = await begun()
    await lose()
    assert await client.wait(job.id, timeout=30) == "later"
    assert [row[:2] for row in await db.fetch(ATTEMPTS)] == [(1, "lost")]
    await _came_to_an_end(executor, pid, tmp_path, eventually)


async def test_the_end_of_the_grace_hands_the_job_back_unspent(
    executor: str,
    single: Any,
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    begun: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """A worker that stops releases what it cannot finish: the job is available again, no failure counts."""
    app = single(handlers.hold)
    process = await work(app)
    await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    pid = await begun()
    assert await process.stop(0.0) is False
    assert await db.fetch(ATTEMPTS) == [(1, "released", "the worker is stopping")]
    assert await db.fetch("select state, failures from holdfast.live_jobs") == [("available", 0)]
    await _came_to_an_end(executor, pid, tmp_path, eventually)


async def test_an_error_made_of_a_stop_costs_nothing(
    work: Any, client: holdfast.Client, db: ThrowawayDatabase, probe: Probe
) -> None:
    """A handler that answers its cancellation with an error of its own is released all the same."""
    app = holdfast.App()

    @app.job
    async def grumble() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            msg = "how rude"
            raise RuntimeError(msg) from None

    process = await work(app)
    await client.enqueue(grumble.job())
    await probe.wait_for("attempt.started")
    await process.stop(0.0)
    assert await db.fetch(ATTEMPTS) == [(1, "released", "the worker is stopping")]
    assert await db.fetch("select state, failures from holdfast.live_jobs") == [("available", 0)]


async def test_a_cancel_and_then_a_stop_end_the_job_as_cancelled(
    work: Any,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    cancel: Any,
    begun: Any,
    probe: Probe,
    tmp_path: Path,
) -> None:
    """A thread that does not answer its cancel is released by the stop, and the job ends as cancelled."""
    app = holdfast.App()
    app.job(kind="it")(handlers.hold)
    process = await work(app)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    await begun()
    await cancel(job.id)
    await probe.wait_for("cancel.delivered")
    await process.stop(0.0)
    (tmp_path / "go").touch()
    reason = "cancel requested; last attempt: the worker is stopping"
    assert await db.fetch("select outcome, failures, reason from holdfast.finished_jobs") == [
        ("cancelled", 0, reason)
    ]


async def test_a_handler_within_the_grace_finishes(
    single: Any, work: Any, client: holdfast.Client, begun: Any, tmp_path: Path
) -> None:
    """A worker that is asked to stop lets its handlers finish and records what they came to."""
    app = single(handlers.hold)
    process = await work(app)
    job = await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    await begun()
    stopping = asyncio.create_task(process.stop(20.0))
    (tmp_path / "go").touch()
    assert await stopping is True
    assert (await client.job(job.id)).result == "first"


async def test_a_handler_that_will_not_be_cancelled_does_not_hold_up_the_stop(
    work: Any, client: holdfast.Client, eventually: Any, probe: Probe, tmp_path: Path
) -> None:
    """A stop is a stop: a coroutine that swallows its cancellation is left behind and reported."""
    app = holdfast.App()
    app.job(kind="it")(handlers.be_stubborn)
    # What a stop waits for a handler that is deaf goes with the lease, so that there is time to spare.
    process = await work(app, ttl=6.0)
    await client.enqueue(app.request("it", {"folder": str(tmp_path)}))
    await eventually(lambda: asyncio.to_thread((tmp_path / "begun").exists))
    async with asyncio.timeout(15):
        assert await process.stop(0.0) is False
    assert probe.seen("slots.stuck") == [{"count": 1}]
    (tmp_path / "go").touch()
    # The handler ends within this loop, not with it.
    await asyncio.wait(
        {task for task in asyncio.all_tasks() if task.get_name() == "holdfast slot"}, timeout=5
    )
