"""A stop is a stop: nothing new, time to finish, and what cannot finish goes back unspent."""

import asyncio
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.runtime.events import Events
from holdfast.store import workers
from holdfast.store.database import Connection
from holdfast.store.listen import Notifications
from holdfast.testing import Probe, ThrowawayDatabase


def waiting_app() -> tuple[holdfast.App, asyncio.Event]:
    """An app whose only kind waits for the event."""
    app, event = holdfast.App(), asyncio.Event()

    @app.job
    async def wait() -> str:
        await event.wait()
        return "finished"

    return app, event


async def test_a_running_job_may_finish_within_the_grace(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase
) -> None:
    """The job completes, the stop says so, and the worker is offline."""
    app, event = waiting_app()
    process = await work(app)
    handle = await client.enqueue(app.request("wait", {}))
    await probe.wait_for("attempt.started")
    stopping = asyncio.create_task(process.stop(20.0))
    await probe.wait_for("worker.stopping")
    event.set()
    assert await stopping is True
    assert await client.wait(handle.id, timeout=5) == "finished"
    assert await db.fetch("select state from holdfast.workers") == [("offline",)]


async def test_what_cannot_finish_goes_back_unspent(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase
) -> None:
    """After the grace the handler is cancelled; the job is available again and has no failure."""
    app, event = waiting_app()
    process = await work(app)
    handle = await client.enqueue(app.request("wait", {}))
    await probe.wait_for("attempt.started")
    assert await process.stop(0.05) is False
    assert await db.fetch("select state, attempt, failures from holdfast.live_jobs") == [("available", 1, 0)]
    assert await db.fetch("select outcome, reason from holdfast.attempts") == [
        ("released", "the worker is stopping")
    ]
    event.set()
    await work(app)
    assert await client.wait(handle.id, timeout=10) == "finished"


async def test_a_stopping_worker_claims_nothing_and_gives_its_buffer_back(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase
) -> None:
    """Jobs enqueued after the stop began stay available, without an attempt."""
    app, event = waiting_app()
    process = await work(app, slots=1)
    await client.enqueue(app.request("wait", {}))
    await probe.wait_for("attempt.started")
    stopping = asyncio.create_task(process.stop(20.0))
    await probe.wait_for("worker.stopping")
    late = await client.enqueue(app.request("wait", {}))
    event.set()
    assert await stopping is True
    rows = await db.fetch("select job_id, state, attempt from holdfast.live_jobs")
    assert rows == [(late.id, "available", 0)]


async def test_a_stop_that_meets_a_turn_under_way_ends_it(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase, eventually: Any
) -> None:
    """A turn that waits for the database when the stop begins claims nothing when the answer comes."""
    app, event = waiting_app()
    process = await work(app, slots=1)
    await client.enqueue(app.request("wait", {}))
    await probe.wait_for("attempt.started")
    late = await client.enqueue(app.request("wait", {}))
    session = await db.database.connect()
    try:
        async with session.transaction():
            await session.execute(f"lock table {db.schema}.queues in access exclusive mode")
            process.worker.claimer.reload()
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            await eventually(lambda: db.value(f"{waits} and datname = current_database()"))
            stopping = asyncio.create_task(process.stop(20.0))
            await probe.wait_for("worker.stopping")
            event.set()
            await probe.wait_for("attempt.ended")
    finally:
        await session.close()
    assert await stopping is True
    rows = await db.fetch("select job_id, state, attempt from holdfast.live_jobs")
    assert rows == [(late.id, "available", 0)]


async def test_what_a_claim_brings_in_after_a_drain_goes_back(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase, eventually: Any
) -> None:
    """The claim was under way when the worker was told to take nothing more: its job is left for others."""
    app, event = waiting_app()
    process = await work(app, slots=1, ttl=30.0)
    # No claim from before the enqueue, which would see nothing, may be the one that waits.
    await process.worker.claimer.stop()
    late = await client.enqueue(app.request("wait", {}))
    session = await db.database.connect()
    try:
        async with session.transaction():
            await session.execute(f"select from {db.schema}.workers for update")
            await process.worker.claimer.start()
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%picked%'"
            await eventually(lambda: db.value(f"{waits} and datname = current_database()"))
            process.worker.drain()
    finally:
        await session.close()
    await probe.wait_for("jobs.claimed")
    await eventually(lambda: db.value("select true from holdfast.live_jobs where state = 'available'"))
    assert await db.fetch("select job_id, outcome, reason from holdfast.attempts") == [
        (late.id, "released", "the worker takes nothing more")
    ]
    assert not probe.seen("attempt.started")
    event.set()


async def test_a_drain_asked_for_from_outside_reaches_the_worker(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase
) -> None:
    """The worker takes nothing more from that moment on, and its running job finishes."""
    app, event = waiting_app()
    process = await work(app, slots=2)
    first = await client.enqueue(app.request("wait", {}))
    await probe.wait_for("attempt.started")
    assert await db.database.run(workers.drain_worker(process.worker.worker_id))
    await probe.wait_for("worker.draining")
    second = await client.enqueue(app.request("wait", {}))
    event.set()
    assert await client.wait(first.id, timeout=10) == "finished"
    await work(app)
    assert await client.wait(second.id, timeout=10) == "finished"
    holder = "select worker_id from holdfast.finished_jobs where job_id = $1"
    assert await db.value(holder, second.id) != process.worker.worker_id
    assert await db.value(holder, first.id) == process.worker.worker_id


async def test_a_drain_gives_back_what_has_not_begun(
    client: holdfast.Client, work: Any, probe: Probe, db: ThrowawayDatabase, eventually: Any
) -> None:
    """What waits in the buffer is left for others at once, however long the handler that runs may take."""
    app, event = waiting_app()
    process = await work(app, slots=1)
    ahead = process.worker.claimer._prefetch
    ahead.room, ahead.measure = 3, lambda: None
    await client.enqueue_many([app.request("wait", {}) for _ in range(4)])
    count = "select count(*) from holdfast.live_jobs where state"
    await eventually(lambda: db.value(f"select ({count} = 'claimed') = 3"))
    # The row says so before the worker does: a claim whose answer finds it draining goes back whole.
    await probe.wait_for("attempt.started")
    process.worker.drain()
    await eventually(lambda: db.value(f"select ({count} = 'available') = 3 and ({count} = 'running') = 1"))
    assert await db.value("select array_agg(distinct reason) from holdfast.attempts") == [
        "the worker takes nothing more"
    ]
    event.set()
    async with asyncio.timeout(20):
        await process.drained()
    assert await db.value("select count(*) from holdfast.finished_jobs") == 1


async def test_fifty_jobs_and_four_workers_make_fifty_calls(client: holdfast.Client, work: Any) -> None:
    """Every job runs exactly once, whoever takes it."""
    app, calls = holdfast.App(), []

    @app.job
    async def call(n: int) -> None:
        calls.append(n)
        await asyncio.sleep(0)

    for _ in range(4):
        await work(app, slots=3)
    handles = [await client.enqueue(call.job(n)) for n in range(50)]
    for handle in handles:
        await client.wait(handle.id, timeout=10)
    assert sorted(calls) == list(range(50))


async def test_a_stop_in_the_middle_of_listening_leaves_no_connection(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped as soon as it was started closes what it had opened by then."""
    opened: list[Connection] = []
    listening = asyncio.Event()

    async def listens_for_ever(self: Connection, *_: object) -> None:
        opened.append(self)
        listening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncpg.Connection, "add_listener", listens_for_ever)
    notifications = Notifications(db.database, Events())
    await notifications.start()
    await listening.wait()
    await notifications.stop()
    assert [connection.is_closed() for connection in opened] == [True]
