"""The clock of a throw-away schema can be stopped, moved and released."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import InputInvalid
from holdfast.store import workers
from holdfast.store.statement import Statement
from holdfast.testing import Clock, Probe, ThrowawayDatabase

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


async def test_a_stopped_clock_stands_still(db: ThrowawayDatabase) -> None:
    """What is recorded after `set` carries exactly that moment, on every connection."""
    await Clock(db).set(NOON)
    assert await Clock(db).is_stopped()
    await db.fetch("select holdfast.enqueue('ping')")
    await db.fetch("select holdfast.enqueue('ping')")
    assert await db.fetch("select distinct created_at from holdfast.jobs") == [(NOON,)]


async def test_advancing_adds_up_and_release_lets_time_run(db: ThrowawayDatabase) -> None:
    """Each advance goes on from where the clock stands; a released clock is the server's."""
    clock = Clock(db)
    await clock.set(NOON)
    await clock.advance(timedelta(hours=1))
    assert await clock.advance(30) == NOON + timedelta(hours=1, seconds=30) == await clock.now()
    await clock.release()
    assert not await clock.is_stopped()
    assert abs(await clock.now() - await db.value("select clock_timestamp()")) < timedelta(seconds=5)


async def test_other_schemas_keep_their_time(db: ThrowawayDatabase, dsn: str) -> None:
    """A stopped clock is the matter of one schema."""
    async with ThrowawayDatabase(dsn) as other:
        await Clock(db).set(NOON)
        assert await Clock(other).now() < NOON


@pytest.mark.parametrize("time", [-1, float("nan"), timedelta(days=-1)])
async def test_time_does_not_go_back(db: ThrowawayDatabase, time: Any) -> None:
    """An advance by less than nothing is refused and changes nothing."""
    with pytest.raises(InputInvalid, match=r"time is .*: "):
        await Clock(db).advance(time)
    assert not await Clock(db).is_stopped()


async def test_a_moment_needs_a_time_zone(db: ThrowawayDatabase) -> None:
    """A naive datetime is refused: nobody knows which noon is meant."""
    with pytest.raises(InputInvalid, match="give a datetime with a time zone"):
        await Clock(db).set(NOON.replace(tzinfo=None))


async def test_a_job_falls_due_when_the_clock_moves(
    client: holdfast.Client, db: ThrowawayDatabase, work: Any, probe: Probe
) -> None:
    """The running leader is told of the new time and stages at once, with nobody waiting an hour."""
    app = holdfast.App()

    @app.job
    async def ping() -> str:
        return "pong"

    handle = await client.enqueue(ping.job(), delay=timedelta(seconds=9))
    await work(app, ttl=30.0)
    await probe.wait_for("leader.changed")
    await Clock(db).advance(10)
    assert await client.wait(handle.id, timeout=10) == "pong"


async def test_a_lease_runs_out_when_the_clock_moves_again(
    db: ThrowawayDatabase, work: Any, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that renews once in ten seconds has a full ttl after a jump, which a second jump passes."""
    declare, looked = workers.declare_lost, asyncio.Event()

    def noted(term: int) -> Statement[list[int]]:
        statement = declare(term)

        def read(rows: Any) -> list[int]:
            looked.set()
            return statement.reader(rows)

        return replace(statement, reader=read)

    monkeypatch.setattr(workers, "declare_lost", noted)
    app = holdfast.App()
    await work(app, ttl=30.0)
    for times in (1, 2):
        await probe.wait_for("leader.changed", times=times)
        # A statement that is planned while the clock is replaced could have both times in it.
        async with asyncio.timeout(20):
            await looked.wait()
        assert not probe.seen("worker.lost")
        looked.clear()
        await Clock(db).advance(31)
    lost = await probe.wait_for("worker.lost")
    assert lost["worker_id"] == await db.value("select min(id) from holdfast.workers where state = 'lost'")
