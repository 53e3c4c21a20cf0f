"""Workers that die, freeze or stand still: nothing is lost, nothing is doubled, and the record says why."""

import asyncio
import signal
import time
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.scenarios import program

TTL = 1.0


async def test_a_killed_workers_job_runs_again_within_ttl_and_five_seconds(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any, gate: Any
) -> None:
    """The handler's begin is one attempt, the last one gets through; the timeline names the dead worker."""
    worker, took, dead = await start(queues=["calm"]), list[float](), list[int]()
    handle = await client.enqueue(program.gate.job(gate.number))
    await worker.probe.wait_for("attempt.started")
    # A full machine may hold up one or two heirs.
    while len(took) < 3 and min(took, default=TTL + 5) >= TTL + 5:
        doomed, worker = worker, await start(queues=["calm"])
        await worker.worker_id()
        doomed.send(signal.SIGKILL)
        killed = time.monotonic()
        await worker.probe.wait_for("attempt.started")
        took.append(time.monotonic() - killed)
        dead.append(await doomed.worker_id())
    assert min(took) < TTL + 5
    await gate.open()
    assert await client.wait(handle.id, timeout=10) == len(dead) + 1
    attempts = await db.fetch("select outcome, reason from holdfast.attempts order by attempt")
    assert [outcome for outcome, _ in attempts] == ["lost"] * len(dead)
    assert [
        one for one, (_, reason) in zip(dead, attempts, strict=True) if f"worker {one} " in reason
    ] == dead
    assert await db.fetch("select attempt, failures from holdfast.finished_jobs") == [
        (len(dead) + 1, len(dead))
    ]


async def test_jobs_that_only_waited_in_a_dead_workers_buffer_come_back_unspent(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any
) -> None:
    """Only a handler that had begun counts a failure; a claim alone costs nothing."""
    await client.enqueue_many([program.once.job() for _ in range(3)])
    worker = await db.value(
        "insert into holdfast.workers (name, host, pid, version, queues, kinds, slots, ttl, started_at, "
        "renewed_at, expires_at) values ('gone', 'h', 1, '0', '{calm}', '{once}', 1, '1 s', now(), now(), "
        "now()) returning id"
    )
    claim = """
        update holdfast.live_jobs set worker_id = $1, attempt = 1, claimed_at = now(), state =
        case when job_id = (select min(job_id) from holdfast.live_jobs) then 'running' else 'claimed' end
    """
    await db.fetch(claim, worker)
    heir = await start(queues=["calm"])
    await heir.probe.wait_for("attempt.ended", times=3)
    rows = await db.fetch("select outcome, count(*) from holdfast.attempts group by 1 order by 1")
    assert rows == [("lost", 1), ("released", 2)]


async def test_a_frozen_worker_that_wakes_up_changes_nothing_and_stops_its_stale_handler(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any, gate: Any, eventually: Any
) -> None:
    """SIGSTOP, rescue, SIGCONT: the old handler is interrupted, its worker begins anew under another id."""
    frozen = await start(queues=["calm"])
    handle = await client.enqueue(program.gate.job(gate.number))
    await eventually(gate.is_waited_for)
    frozen.send(signal.SIGSTOP)
    heir = await start(queues=["calm"])
    await heir.probe.wait_for("attempt.started")
    frozen.send(signal.SIGCONT)
    await frozen.probe.wait_for("lease.lost")
    interrupted = "select count(*) from holdfast.effects where what = 'interrupted'"
    await eventually(lambda: db.value(interrupted))
    await frozen.probe.wait_for("worker.registered", times=2)
    await gate.open()
    assert await client.wait(handle.id, timeout=10) == 2
    through = await db.fetch("select attempt, pid from holdfast.effects where what = 'through'")
    assert through == [(2, heir.pid)]
    assert await db.value("select count(*) from holdfast.finished_jobs") == 1


async def test_a_frozen_worker_that_wakes_up_begins_nothing_that_others_have_by_now(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any, eventually: Any
) -> None:
    """Its slot comes free before it hears that it is lost, and the next job is in its buffer."""
    quick, slow = program.stand_still.job(0.0), program.stand_still.job(2.0)
    handles = await client.enqueue_many([*[quick] * 30, slow, *[quick] * 30])
    last = handles[30].id
    frozen = await start(queues=["calm"], slots=1)
    await eventually(lambda: db.value("select count(*) from holdfast.effects where job_id = $1", last))
    waiting = "select count(*) from holdfast.live_jobs where worker_id is not null and job_id > $1"
    assert await db.value(waiting, last) > 0
    frozen.send(signal.SIGSTOP)
    heir = await start(queues=["calm"])
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    heir.send(signal.SIGTERM)
    assert await heir.ended() == 0
    frozen.send(signal.SIGCONT)
    await frozen.probe.wait_for("worker.registered", times=2)
    assert max(fields["job"] for fields in frozen.probe.seen("attempt.started")) == last
    after = await client.enqueue(program.once.job())
    await client.wait(after.id, timeout=20)


async def test_a_handler_that_blocks_the_loop_for_two_ttls_keeps_its_job(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any
) -> None:
    """The lease is renewed by a thread of its own, so a rude handler costs nothing."""
    await start(queues=["calm"])
    await start(queues=["calm"])
    handle = await client.enqueue(program.stand_still.job(2 * TTL + 0.5))
    assert await client.wait(handle.id, timeout=20) == 1
    assert await db.value("select count(*) from holdfast.attempts") == 0


async def test_a_loop_that_stands_still_past_the_timeout_loses_its_lease(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any
) -> None:
    """A process that cannot even time its handler out stops renewing, and others take over."""
    stuck = await start(queues=["calm"])
    await stuck.worker_id()
    handle = await client.enqueue(program.stand_still.job(60), timeout=0.5, max_attempts=2)
    await stuck.probe.wait_for("lease.abandoned")
    heir = await start(queues=["calm"])
    await heir.probe.wait_for("attempt.started", lambda fields: fields["job"] == handle.id)
    assert await db.fetch("select outcome from holdfast.attempts") == [("lost",)]


async def test_a_job_that_kills_its_workers_ends_as_failed(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any
) -> None:
    """Lost workers count against max_attempts, so a deadly job cannot take the fleet down for ever."""
    handle = await client.enqueue(program.crash.job())
    for _ in range(2):
        victim = await start(queues=["calm"])
        assert await victim.ended() == -signal.SIGKILL
    await start(queues=["calm"])
    with pytest.raises(holdfast.JobFailed, match="stopped renewing its lease"):
        await client.wait(handle.id, timeout=15)
    assert await db.value("select count(*) from holdfast.effects") == 2


STATEMENTS = range(1, 15)


async def test_a_worker_may_die_at_every_statement(
    client: holdfast.Client, db: ThrowawayDatabase, start: Any
) -> None:
    """SIGKILL before and after each statement of a worker: every job ends, every effect happens once."""
    handles: dict[str, list[int]] = {}
    for number in STATEMENTS:
        for after in (False, True):
            queue = f"q{number}{'after' if after else 'before'}"
            many = [program.once.job(), program.stumble.job(), program.once.job()]
            handles[queue] = [(await client.enqueue(one, queue=queue)).id for one in many]
    gate = asyncio.Semaphore(4)

    async def die(number: int, after: bool) -> int:
        async with gate:
            queue = f"q{number}{'after' if after else 'before'}"
            doomed = await start(queues=[queue], die_at=number, die_after=after, slots=2)
            return int(await doomed.ended(within=60))

    deaths = [die(number, after) for number in STATEMENTS for after in (False, True)]
    assert set(await asyncio.gather(*deaths)) == {-signal.SIGKILL}, "all must die, or this shows nothing"
    await start(queues=list(handles), slots=10)
    for ids in handles.values():
        assert await client.wait(ids[0], timeout=40) is None
        assert await client.wait(ids[1], timeout=40) == "walked on"
        assert await client.wait(ids[2], timeout=40) is None
    twice = await db.fetch("select job_id, count(*) from holdfast.effects group by 1 having count(*) <> 1")
    assert twice == []
    assert await db.value("select count(*) from holdfast.effects") == 2 * len(handles)
    assert await db.value("select count(*) from holdfast.live_jobs") == 0
