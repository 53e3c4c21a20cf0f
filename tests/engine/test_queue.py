"""What the queue on PostgreSQL does beyond the interface: limits, cancels, drains, outages, a good end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.engine import (
    Activity,
    Cancel,
    Complete,
    EngineConfig,
    EngineStore,
    Fail,
    Release,
    Renewal,
    StepReport,
    StepState,
    Suspend,
)
from holdfast.engine.queue import FIRST_PAUSE
from holdfast.errors import SchemaMissing
from holdfast.testing import Probe, ThrowawayDatabase
from tests.engine.conftest import KIND, OpenStore


async def test_the_limit_of_a_queue_holds_for_engines(opened: OpenStore, db: ThrowawayDatabase) -> None:
    """No more runs are given out than the queue may have running, over all engines."""
    first, second = await opened(), await opened()
    await db.fetch("insert into holdfast.queues (name, max_running) values ('default', 3)")
    for _ in range(5):
        await first.queue.enqueue(KIND, {})
    held = [*await first.queue.claim(2), *await second.queue.claim(5)]
    assert len(held) == 3
    await first.queue.end(held[0], Complete())
    assert len(await second.queue.claim(5)) == 1


async def test_a_cancel_is_heard_at_the_next_renewal(opened: OpenStore, client: holdfast.Client) -> None:
    """So is a pause, which holds the run back when it is next suspended."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await client.pause(claim.run_id)
    assert await store.queue.renew(claim) == Renewal(paused=True)
    assert await client.cancel(claim.run_id) is False
    assert (await store.queue.renew(claim)).cancelled


async def test_a_paused_run_waits_for_its_resume(opened: OpenStore, client: holdfast.Client) -> None:
    """A signal does not wake it; what has come meanwhile does so when it is resumed."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await client.pause(claim.run_id)
    await store.queue.end(claim, Suspend("a word", signals=("go",)))
    await store.signals.send(claim.run_id, "go")
    assert await store.queue.claim() == []
    await client.resume(claim.run_id)
    assert len(await store.queue.claim()) == 1


async def test_a_run_does_not_wait_for_the_letters_of_a_name(opened: OpenStore) -> None:
    """A name without its tuple is refused, and the attempt goes on: nobody sends its letters."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    with pytest.raises(holdfast.OptionInvalid, match="signals is 'approved': give a tuple of names"):
        await store.queue.end(claim, Suspend("an approval", signals="approved"))  # type: ignore[arg-type]
    await store.queue.end(claim, Complete())


async def test_a_drained_engine_takes_no_more(opened: OpenStore, db: ThrowawayDatabase) -> None:
    """It hears so when it renews, and its last run may end well."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await db.fetch("update holdfast.workers set state = 'draining' where id = $1", claim.worker_id)
    assert await store.queue.renew(claim) == Renewal(draining=True)
    await store.queue.enqueue(KIND, {})
    assert await store.queue.claim() == []
    await store.queue.end(claim, Complete())


async def test_an_engine_that_closes_gives_its_runs_back_unspent(
    db: ThrowawayDatabase, opened: OpenStore
) -> None:
    """Another one has them at once, without a failure, and the worker has left in good order."""
    config = EngineConfig(kinds=(KIND,))
    async with EngineStore(db.dsn, config, schema=db.schema) as leaving:
        await leaving.queue.enqueue(KIND, {})
        [held] = await leaving.queue.claim()
    [claim] = await (await opened()).queue.claim()
    assert (claim.run_id, claim.attempt, claim.failures) == (held.run_id, 2, 0)
    assert await db.value("select state from holdfast.workers where id = $1", held.worker_id) == "offline"


async def test_a_run_is_enqueued_on_a_connection_of_the_caller(
    opened: OpenStore, db: ThrowawayDatabase
) -> None:
    """Any connection that the client takes will do; the options are those of every job."""
    store = await opened()
    own = await asyncpg.connect(db.dsn)
    try:
        async with own.transaction():
            handle = await store.queue.enqueue(KIND, {}, connection=own, unique_key="order 7", tags=["vip"])
            assert await store.queue.claim() == []
    finally:
        await own.close()
    assert (await store.queue.enqueue(KIND, {}, unique_key="order 7")).id == handle.id
    with pytest.raises(holdfast.DuplicateJob):
        await store.queue.enqueue(KIND, {}, unique_key="order 7", unique_policy="reject")


@pytest.mark.parametrize("spec", [["a list"], "text", None])
async def test_a_spec_is_a_dictionary(opened: OpenStore, spec: Any) -> None:
    """Anything else is refused before it is sent."""
    store = await opened()
    with pytest.raises(holdfast.OptionInvalid, match="spec"):
        await store.queue.enqueue(KIND, spec)


@pytest.mark.parametrize(
    "wrong", [{"kinds": ()}, {"kinds": "plan"}, {"queues": []}, {"ttl": 0.1}, {"ttl": 1e9}]
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """The error names the option."""
    with pytest.raises(holdfast.OptionInvalid, match=next(iter(wrong))):
        EngineConfig(**({"kinds": (KIND,)} | wrong))


async def test_an_engine_that_cannot_begin_leaves_no_connection(db: ThrowawayDatabase) -> None:
    """A schema that is missing may be made yet, and the engine be opened again and again until it is."""
    store = EngineStore(db.dsn, EngineConfig(kinds=(KIND,)), schema="missing")
    with pytest.raises(SchemaMissing):
        await store.open()
    with pytest.raises(holdfast.DatabaseUnavailable, match="there are no connections"):
        await store.queue.stage()


def away_at_first(
    store: EngineStore,
    patch: pytest.MonkeyPatch,
    error: type[holdfast.HoldfastError] = holdfast.DatabaseUnavailable,
) -> Iterator[int]:
    """Have the database fail for two statements; what is left in the answer are those to come."""
    run, failing = store._database.run, iter(range(2))

    async def away(*arguments: Any) -> Any:
        if next(failing, None) is not None:
            msg = "away"
            raise error(msg)
        return await run(*arguments)

    patch.setattr(store._database, "run", away)
    return failing


@pytest.mark.parametrize("error", [holdfast.DatabaseUnavailable, holdfast.DatabaseRefused])
async def test_an_end_waits_for_a_database_that_is_away(
    opened: OpenStore,
    db: ThrowawayDatabase,
    monkeypatch: pytest.MonkeyPatch,
    error: type[holdfast.HoldfastError],
) -> None:
    """The outcome of work that was done is not lost because a connection broke, or a lock took too long."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    failing = away_at_first(store, monkeypatch, error)
    await store.queue.end(claim, Complete(7))
    assert next(failing, None) is None
    assert await db.value("select result::int from holdfast.job_overview") == 7


@pytest.mark.parametrize("outcome", [Complete(7), Suspend("a rest", delay=60), Release()])
@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_an_end_that_came_after_a_rescue_is_refused(
    opened: OpenStore,
    db: ThrowawayDatabase,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Any,
    max_attempts: int,
) -> None:
    """A try whose answer was lost may not have arrived; what has ended is not this engine's work then."""
    store, other = await opened(), await opened()
    await store.queue.enqueue(KIND, {}, max_attempts=max_attempts)
    [claim] = await store.queue.claim()
    away_at_first(store, monkeypatch)
    expired = "update holdfast.workers set ttl = '0', expires_at = '-infinity' where id = $1"
    await db.fetch(expired, claim.worker_id)
    assert [one.job_id for one in await other.queue.rescue()] == [claim.run_id]
    with pytest.raises(holdfast.LeaseLost):
        await store.queue.end(claim, outcome)


@pytest.mark.parametrize(
    "outcome", [Complete(7), Fail("no"), Cancel(), Release(), Suspend("a rest", delay=60)]
)
@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_end_whose_answer_was_lost_is_this_engines_own(
    opened: OpenStore,
    client: holdfast.Client,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Any,
    cancelled: bool,
) -> None:
    """The next try finds that it has ended, and that it ended so."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    if cancelled:
        await client.cancel(claim.run_id)
    run, answers = store._database.run, iter(range(1))

    async def lost(*arguments: Any) -> Any:
        answer = await run(*arguments)
        if next(answers, None) is not None:
            msg = "the connection broke"
            raise holdfast.DatabaseUnavailable(msg)
        return answer

    monkeypatch.setattr(store._database, "run", lost)
    await store.queue.end(claim, outcome)


async def test_a_delay_is_not_prolonged_by_a_database_that_was_away(
    opened: OpenStore, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended run is due so long after its engine said so, however late that could be written."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    away_at_first(store, monkeypatch)
    await store.queue.end(claim, Suspend("a rest", delay=60))
    left = "select extract(epoch from wake_at - since)::float from holdfast.suspensions"
    assert await db.value(left) < 60 - FIRST_PAUSE


async def test_what_a_lost_answer_of_a_claim_leaves_behind_is_given_back(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was claimed without anybody knowing is claimed anew, and not held for as long as we live."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    database = store._database
    run = database.run

    async def lost(statement: Any, *rest: Any) -> Any:
        answer = await run(statement, *rest)
        if statement.name == "claim_jobs":
            msg = "the connection broke"
            raise holdfast.DatabaseUnavailable(msg)
        return answer

    monkeypatch.setattr(database, "run", lost)
    with pytest.raises(holdfast.DatabaseUnavailable):
        await store.queue.claim()
    monkeypatch.undo()
    [claim] = await store.queue.claim()
    assert (claim.attempt, claim.failures) == (2, 0)


async def test_notes_neither_fail_nor_hold_up_an_engine_without_a_database(
    opened: OpenStore, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written in time is dropped, and told; later notes are written again."""
    monkeypatch.setattr("holdfast.engine.pen.PAUSES", (0.0, 0.0))
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    database = store._database

    async def away(*_: Any) -> Any:
        msg = "away"
        raise holdfast.DatabaseUnavailable(msg)

    with monkeypatch.context() as outage:
        outage.setattr(database, "run", away)
        for place in range(3):
            store.progress.report(claim, StepReport(step="lost", place=place, state=StepState.RUNNING))
        await store.progress.settle()
    await probe.wait_for("notes.dropped", lambda fields: fields["count"] == 3)
    store.progress.report(claim, StepReport(step="kept", place=1, state=StepState.COMPLETED))
    await store.progress.settle()
    assert [step.name for step in await store.progress.read(claim.run_id)] == ["kept"]


async def test_one_note_that_cannot_be_written_costs_no_other(opened: OpenStore, probe: Probe) -> None:
    """A name or a state that PostgreSQL refuses is dropped alone; a state may be a plain text."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    for place, name in enumerate(("first", "nul \x00", "last")):
        store.progress.report(claim, StepReport(step=name, place=place, state=StepState.COMPLETED))
    untyped: list[Any] = ["completed", "no state"]
    for place, state in enumerate(untyped, 3):
        store.progress.report(claim, StepReport(step=state, place=place, state=state))
    await store.queue.end(claim, Release())
    steps = await store.progress.read(claim.run_id)
    assert {step.name for step in steps} == {"first", "last", "completed"}
    assert [fields["count"] for fields in probe.seen("notes.dropped")] == [1, 1]


async def test_a_lost_answer_writes_no_line_of_the_log_twice(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written although nobody heard of it is not written again."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    database = store._database
    run, lost = database.run, 1

    async def deaf(statement: Any, *rest: Any) -> Any:
        nonlocal lost
        answer = await run(statement, *rest)
        if statement.name == "append_activities" and lost:
            lost -= 1
            msg = "the connection broke"
            raise holdfast.DatabaseUnavailable(msg)
        return answer

    monkeypatch.setattr(database, "run", deaf)
    for tried in (1, 2):
        store.activities.append(claim, Activity(step="charge", place=0, tried=tried))
    await store.activities.settle()
    assert lost == 0
    assert [line.tried for line in await store.activities.read(claim.run_id)] == [1, 2]


async def test_runs_of_an_engine_are_seen_like_all_others(opened: OpenStore, client: holdfast.Client) -> None:
    """They are jobs and runs: what shows and signals those does so with them."""
    store = await opened()
    handle = await store.queue.enqueue(KIND, {"order": 7})
    [claim] = await store.queue.claim()
    store.progress.report(claim, StepReport(step="charge", place=0, state=StepState.COMPLETED))
    store.activities.append(claim, Activity(step="charge", place=0))
    await client.signal(handle.id, "go", 7)
    await store.queue.end(claim, Complete("done"))
    assert await client.wait(handle.id, timeout=5) == "done"
    assert [step.name for step in await client.history(handle.id)] == ["charge"]
    assert [line.step for line in await client.activities(handle.id)] == ["charge"]
    assert (await client.job(handle.id)).args == {"order": 7}


async def test_a_cancel_reaches_a_suspended_run_that_has_done_something(
    opened: OpenStore, client: holdfast.Client
) -> None:
    """It comes back once more, so that its engine can make up for that, and says that it is cancelled."""
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    store.progress.report(claim, StepReport(step="charge", place=0, state=StepState.COMPLETED))
    await store.queue.end(claim, Suspend("an approval", signals=("approved",)))
    await client.cancel(claim.run_id)
    [claim] = await store.queue.claim()
    assert (await store.queue.renew(claim)).cancelled
    await store.queue.end(claim, Cancel("paid back"))
    assert (await client.job(claim.run_id)).state == "cancelled"


async def test_an_outage_spares_engines_too(
    opened: OpenStore, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Whichever comes back first does not take the runs of the others, who could not renew either."""
    # A server that has just started spares everybody anyway.
    await eventually(lambda: db.value("select pg_postmaster_start_time() < now() - interval '2 seconds'"))
    store, other = await opened(), await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    assert await other.queue.rescue() == []
    await db.fetch("update holdfast.workers set ttl = '2 seconds', expires_at = now() - interval '1 second'")
    await db.fetch("update holdfast.leader set heard_at = now() - interval '1 minute'")
    assert await other.queue.rescue() == []
    assert await store.queue.renew(claim) == Renewal()
