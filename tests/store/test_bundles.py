"""Bundles: many first attempts in one row.  A job leaves its bundle once, by whatever way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.model.job import ClaimedJob, JobState, Tie
from holdfast.model.outcome import Complete, Outcome, PutBack
from holdfast.model.selection import JobFilter
from holdfast.rules.intervention import Intervention
from holdfast.store import attempts, bundles, jobs, overview, workers
from holdfast.store.attempts import Demand, Ended, Returned
from holdfast.store.database import Connection, Database
from holdfast.store.statement import Statement
from tests.store.scene import KIND, Scene, fence

STAND = """
    select (select array_agg(job_id order by job_id) from holdfast.live_jobs),
           (select array_agg(job_id order by job_id) from holdfast.bundled_jobs),
           (select array_agg(job_id order by job_id) from holdfast.finished_jobs)"""
HISTORY = """
    select queue, kind, outcome, attempt, failures, worker_id, claimed_at is null,
           started_at between claimed_at and finished_at, result::text, parent_id
    from holdfast.finished_jobs order by job_id"""


async def claim(
    scene: Scene,
    worker_id: int,
    *queues: str,
    limit: int = 10,
    free: int = 0,
    kinds: Sequence[str] = (KIND,),
    connection: Connection | None = None,
) -> list[ClaimedJob]:
    """Claim into bundles."""
    demand = Demand(
        worker_id=worker_id, queues=queues or ("default",), kinds=(KIND, "other"), limit=limit, free=free
    )
    return await scene.run(attempts.claim_bundled(demand, kinds), connection)


def ties(claimed: Sequence[ClaimedJob]) -> dict[int, Tie]:
    """Where these jobs stand."""
    return {job.id: job.tie for job in claimed if job.tie is not None}


def bundle_of(job: ClaimedJob) -> int | None:
    """The bundle that a job stands in."""
    return job.tie and job.tie[0]


async def complete(
    scene: Scene,
    claimed: Sequence[ClaimedJob],
    *chosen: ClaimedJob,
    result: str | None = None,
    connection: Connection | None = None,
) -> list[int]:
    """Complete some of the jobs that a claim has brought, all where none is named."""
    places = ties(claimed)
    ended = [(places[job.id], Ended(fence(job), Complete(result), 0.1)) for job in chosen or claimed]
    written = await scene.run(bundles.complete_bundled(ended), connection)
    return sorted(written)


async def stand(scene: Scene) -> tuple[list[int], list[int], list[int]]:
    """Which jobs have rows of their own, which are in bundles, and which have ended."""
    live, bundled, finished = (await scene.db.fetch(STAND))[0]
    return live or [], bundled or [], finished or []


async def test_a_claim_into_a_bundle_brings_what_any_claim_brings(scene: Scene) -> None:
    """Every fact of a job but its place in the table is the same, and so is what becomes of it."""
    options: dict[str, Any] = {
        "args": '{"a": 1}',
        "priority": 3,
        "tags": ["x"],
        "meta": '{"m": 2}',
        "timeout": 7.0,
        "max_attempts": 2,
        "trace": "00-1",
    }
    worker = await scene.worker()
    await scene.enqueue(3, **options)
    plain = await scene.claim(worker, limit=3, free=1)
    await scene.run(attempts.complete_jobs([Ended(fence(job), Complete(), 0.1) for job in plain]))
    await scene.enqueue(3, **options)
    bundled = await claim(scene, worker, limit=3, free=1)
    assert len({bundle_of(job) for job in bundled} - {None}) == 1
    assert await complete(scene, bundled) == [job.id for job in bundled]
    ignored = {"id": 0, "place": 0, "tie": None, "enqueued": 0.0, "claimed": 0.0}
    facts = [[_with(job, ignored) for job in claimed] for claimed in (plain, bundled)]
    assert facts[0] == facts[1]
    assert [job.started for job in bundled] == [True, False, False]
    history = await scene.db.fetch(HISTORY)
    assert history[:3] == history[3:]


async def test_jobs_of_one_claim_keep_what_is_their_own(scene: Scene) -> None:
    """Those that differ in terms stand in bundles of their own, those that differ in anything else do not."""
    worker = await scene.worker()
    own: list[dict[str, Any]] = [
        {"args": '{"n": 1}', "meta": '{"m": 1}'},
        {"args": '{"n": 2}', "timeout": 7.0},
        {"args": '{"n": 3}', "retry": '{"kind": "fixed"}'},
        {"args": '{"n": 4}', "tags": ["a", 'b"']},
        {"args": '{"n": 5}', "trace": "00-1"},
        {"args": '{"n": 6}', "max_attempts": 2},
        {"args": '{"n": 7}', "priority": 1},
        {"args": '{"n": 8}'},
    ]
    for options in own:
        await scene.enqueue(**options)
    jobs = await claim(scene, worker, limit=8, free=3)
    names = [name for options in own for name in options]
    best_first = [own[6], *own[:6], own[7]]
    usual = ClaimedJob(0, 1, 0, KIND, "default", 5, 5, 300.0, "", None, "{}", None, None, 0.0, 0.0, False)
    wanted = [{name: options.get(name, getattr(usual, name)) for name in names} for options in best_first]
    assert [{name: getattr(job, name) for name in names} for job in jobs] == wanted
    assert [job.started for job in jobs] == [True] * 3 + [False] * 5
    bundles = [bundle_of(job) for job in jobs]
    assert bundles[1] == bundles[3] == bundles[4] == bundles[5] == bundles[7]
    assert len({*bundles}) == 4
    assert {*bundles} == {row[0] for row in await scene.db.fetch("select id from holdfast.bundles")}
    assert await complete(scene, jobs) == sorted(job.id for job in jobs)


def _with(job: ClaimedJob, facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts.get(name, getattr(job, name)) for name in job.__struct_fields__}


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
@pytest.mark.parametrize("plan", ["enable_hashagg", "enable_sort", "enable_incremental_sort"])
async def test_a_bundle_has_its_jobs_in_order_by_whatever_plan(scene: Scene, plan: str, version: int) -> None:
    """The first of them are those that run, and neither hash nor sort puts others there."""
    worker = await scene.worker()
    for n in range(60):
        await scene.enqueue(1, timeout=float(1 + n % 3), priority=n % 2, args=f'{{"n": {n}}}')
    async with scene.db.database.transaction() as connection:
        assert connection.get_server_version().major == version
        await connection.execute(f"set local {plan} = off")
        jobs = await claim(scene, worker, limit=60, free=20, connection=connection)
    stored = await scene.db.fetch("select id, job_ids, running from holdfast.bundles")
    assert len(stored) == 6
    for bundle, job_ids, running in stored:
        assert job_ids == sorted(job_ids) == [job.id for job in jobs if bundle_of(job) == bundle]
        places = [job.tie for job in jobs if bundle_of(job) == bundle]
        assert places == [(bundle, len(job_ids), nth) for nth in range(len(job_ids))]
        assert running == sum(job.started for job in jobs if bundle_of(job) == bundle)
    assert [job.args for job in sorted(jobs, key=lambda job: job.id)] == [f'{{"n": {n}}}' for n in range(60)]
    assert await complete(scene, jobs, *jobs[::7]) == sorted(job.id for job in jobs[::7])


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
async def test_a_bundle_has_its_jobs_in_order_though_kinds_and_priorities_are_mixed(
    scene: Scene, version: int
) -> None:
    """No plan sorts them anew by what they have in common, and forgets the rest."""
    worker = await scene.worker()
    for n in range(300):
        await scene.enqueue(1, kind=(KIND, "other")[n % 2], priority=n % 3)
    async with scene.db.database.transaction() as connection:
        assert connection.get_server_version().major == version
        await connection.execute("set local enable_hashagg = off")
        jobs = await claim(scene, worker, limit=300, free=20, kinds=(KIND, "other"), connection=connection)
    first = sorted(jobs, key=lambda job: (job.priority, job.id))[:20]
    assert {job.id for job in jobs if job.started} == {job.id for job in first}
    stored = await scene.db.fetch("select job_ids, running from holdfast.bundles")
    assert len(stored) == 6
    for job_ids, running in stored:
        assert job_ids == sorted(job_ids)
        assert set(job_ids[:running]) == set(job_ids) & {job.id for job in first}


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 0, 1, 2, 3), (0, 0, 1, 1, 2, 2, 3, 3)])
async def test_an_end_that_is_told_twice_at_once_is_written_once(
    scene: Scene, order: tuple[int, ...]
) -> None:
    """Also beside others, of this bundle and of another one."""
    worker = await scene.worker()
    await scene.enqueue(2)
    await scene.enqueue(2, priority=1)
    jobs = await claim(scene, worker, limit=4)
    assert await complete(scene, jobs, *(jobs[nth] for nth in order)) == sorted(job.id for job in jobs)
    history = await scene.db.fetch("select job_id from holdfast.finished_jobs order by 1")
    assert [row[0] for row in history] == sorted(job.id for job in jobs)


async def test_each_end_of_several_bundles_is_its_own(scene: Scene) -> None:
    """Results and times are told for all bundles in one list, whichever of them is named first."""
    worker = await scene.worker()
    await scene.enqueue(3, priority=1)
    await scene.enqueue(4)
    jobs = await claim(scene, worker, limit=7)
    # So that handlers may have run for minutes since.
    await scene.db.fetch("update holdfast.bundles set claimed_at = claimed_at - interval '1 day'")
    places = ties(jobs)
    for chosen in ([jobs[nth] for nth in (6, 0, 4, 2)], [jobs[nth] for nth in (5, 3, 1)]):
        ended = [
            (places[job.id], Ended(fence(job), Complete(f'{{"id": {job.id}}}'), 60.0 * job.id))
            for job in chosen
        ]
        written = await scene.run(bundles.complete_bundled(ended))
        assert sorted(written) == sorted(job.id for job in chosen)
    history = await scene.db.fetch(
        "select job_id, (result ->> 'id')::bigint, extract(epoch from finished_at - started_at)::integer "
        "from holdfast.finished_jobs order by job_id"
    )
    assert history == [(job_id, job_id, 60 * job_id) for job_id in sorted(places)]


async def test_only_what_is_fresh_and_plain_goes_into_a_bundle(scene: Scene) -> None:
    """Whatever has a past, a parent, a unique key or another time is claimed where it is."""
    worker = await scene.worker()
    fresh = await scene.enqueue(2)
    [unique] = await scene.enqueue(unique_key="one of a kind")
    [returned] = await scene.enqueue()
    [overdue] = await scene.enqueue()
    [child] = await scene.enqueue()
    [stranger] = await scene.enqueue(kind="other")
    await scene.db.fetch(
        "update holdfast.live_jobs set attempt = 1, failures = 1 where job_id = $1", returned
    )
    await scene.db.fetch(
        "update holdfast.live_jobs set run_at = run_at - interval '1 hour' where job_id = $1", overdue
    )
    await scene.db.fetch(
        "update holdfast.live_jobs set parent_id = 1, family_id = 1 where job_id = $1", child
    )
    claimed = await claim(scene, worker)
    assert {job.id for job in claimed if job.tie is not None} == set(fresh)
    others = [unique, returned, overdue, child, stranger]
    assert {job.id: job.attempt for job in claimed if job.tie is None} == dict.fromkeys(others, 1) | {
        returned: 2
    }
    assert await stand(scene) == (others, fresh, [])
    assert set((await scene.states()).values()) == {"claimed"}


async def test_each_queue_kind_and_priority_has_a_bundle_of_its_own(scene: Scene) -> None:
    """What is in one is alike, so that nobody has to look into it to count it."""
    worker = await scene.worker("default", "b")
    for queue in ("default", "b"):
        for kind in (KIND, "other"):
            for priority in (5, 1):
                await scene.enqueue(2, queue=queue, kind=kind, priority=priority)
    claimed = await claim(scene, worker, "default", "b", limit=16, free=5, kinds=(KIND, "other"))
    assert len(claimed) == 16
    found = await scene.db.fetch("select queue, kind, priority from holdfast.bundles")
    assert len(found) == len(set(found)) == 8
    shown = await scene.db.fetch("select job_id, state from holdfast.bundled_jobs")
    assert dict(shown) == {job.id: "running" if job.started else "claimed" for job in claimed}
    assert await complete(scene, claimed) == sorted(job.id for job in claimed)
    assert await scene.db.value("select count(*) from holdfast.bundles") == 0


async def test_a_job_in_a_bundle_ends_once(scene: Scene) -> None:
    """Ends come in parts, some of them twice; the bundle goes with the last of its jobs."""
    await scene.enqueue(5)
    claimed = await claim(scene, await scene.worker())
    ids = [job.id for job in claimed]
    assert await complete(scene, claimed, claimed[3], claimed[0], result='{"a": 1}') == [ids[0], ids[3]]
    assert await complete(scene, claimed, claimed[0], claimed[1]) == [ids[1]]
    assert await stand(scene) == ([], [ids[2], ids[4]], [ids[0], ids[1], ids[3]])
    assert await complete(scene, claimed) == [ids[2], ids[4]]
    assert await complete(scene, claimed) == []
    assert await stand(scene) == ([], [], ids)
    assert await scene.db.value("select count(*) from holdfast.bundles") == 0
    results = await scene.db.fetch("select result::text from holdfast.finished_jobs order by job_id")
    assert results == [('{"a": 1}',), (None,), (None,), ('{"a": 1}',), (None,)]


async def test_who_is_taken_out_has_the_row_that_any_claim_would_have_left(scene: Scene) -> None:
    """And from then on its end is written there, and nowhere else."""
    rows = (
        "select queue, kind, priority, state, attempt, failures, worker_id, claimed_at, started_at, "
        "place = job_id, run_at = (select created_at from holdfast.jobs where id = job_id), revision, "
        "suspect, ahead, progress "
        "from holdfast.live_jobs order by job_id"
    )
    worker = await scene.worker()
    await scene.enqueue(3, priority=2)
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    await scene.claim(worker, limit=3, free=1, connection=session)
    usual = [_timeless(row) for row in await session.fetch(_in(scene, rows))]
    await transaction.rollback()
    claimed = await claim(scene, worker, limit=3, free=1)
    out = await scene.run(bundles.untie_jobs([job.id for job in claimed]))
    assert sorted(out) == [job.id for job in claimed]
    assert [_timeless(row) for row in await scene.db.fetch(rows)] == usual
    assert await scene.db.value("select count(*) from holdfast.bundles") == 0
    assert await complete(scene, claimed) == []
    assert len(await scene.complete(*claimed)) == 3


def _in(scene: Scene, text: str) -> str:
    return text.replace("holdfast.", f'"{scene.db.schema}".')


def _timeless(row: Sequence[Any]) -> list[Any]:
    return ["a time" if hasattr(value, "year") else value for value in row]


@pytest.mark.parametrize("first", ["an end", "a cancel"])
async def test_two_who_want_the_same_job_come_one_after_the_other(scene: Scene, first: str) -> None:
    """The second waits for the first, then finds the job gone, and everything else as it was."""
    await scene.enqueue(3)
    claimed = await claim(scene, await scene.worker())
    ids = [job.id for job in claimed]
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    if first == "an end":
        assert await complete(scene, claimed, claimed[1], connection=session) == [ids[1]]
        second = asyncio.create_task(scene.run(bundles.untie_jobs(ids[1:])))
    else:
        assert await scene.run(bundles.untie_jobs([ids[1]]), session) == [ids[1]]
        second = asyncio.create_task(complete(scene, claimed, *claimed[1:]))
    await scene.blocked()
    await transaction.commit()
    assert await second == [ids[2]]
    ended, untied = ([ids[1]], [ids[2]]) if first == "an end" else ([ids[2]], [ids[1]])
    assert await stand(scene) == (untied, [ids[0]], ended)


async def test_jobs_of_the_lost_are_rescued_from_their_bundles(scene: Scene) -> None:
    """What was in a slot has failed once, what was in the buffer is given back unspent; ended is ended."""
    await scene.enqueue(4)
    worker, other = await scene.worker(), await scene.worker()
    claimed = await claim(scene, worker, free=2)
    await complete(scene, claimed, claimed[0], claimed[2])
    await scene.lose(worker)
    term = await scene.lead()
    # Nobody may take the worker for one that holds nothing.
    assert await scene.run(workers.clear_workers(term, 10)) == []
    out = await scene.run(bundles.untie_orphans(term, 10))
    assert sorted(out) == [claimed[1].id, claimed[3].id]
    rescued = await scene.run(workers.rescue_jobs(term, 10))
    assert {one.job_id: one.fate for one in rescued} == {claimed[1].id: "lost", claimed[3].id: "released"}
    assert await complete(scene, claimed) == []
    again = await claim(scene, other)
    assert [(job.id, job.attempt, job.failures, bundle_of(job)) for job in again] == [
        (claimed[1].id, 2, 1, None),
        (claimed[3].id, 2, 0, None),
    ]
    assert await scene.run(workers.clear_workers(term, 10)) == [worker]


async def test_only_the_bundles_of_the_lost_are_taken_apart_and_only_by_the_leader(scene: Scene) -> None:
    """A worker that lives keeps its own."""
    await scene.enqueue(4)
    worker, lives = await scene.worker(), await scene.worker()
    await claim(scene, lives, limit=2)
    await claim(scene, worker, limit=2)
    await scene.lose(worker)
    term = await scene.lead()
    assert await scene.run(bundles.untie_orphans(term - 1, 10)) == []
    out = await scene.run(bundles.untie_orphans(term, 10))
    assert len(out) == 2
    assert len((await stand(scene))[1]) == 2


async def test_jobs_in_bundles_that_a_worker_knows_nothing_of_are_taken_apart(scene: Scene) -> None:
    """They are what a claim has left whose answer was lost."""
    await scene.enqueue(4)
    worker = await scene.worker()
    known = await claim(scene, worker, limit=2)
    lost = await claim(scene, worker, limit=2)
    strange = [known[1], *lost]
    out = await scene.run(bundles.untie_unknown(worker, [known[0].id]))
    assert sorted(out) == [job.id for job in strange]
    assert await scene.run(attempts.held_attempts(worker)) == [fence(job) for job in strange]
    assert (await stand(scene))[1] == [known[0].id]
    assert await scene.run(bundles.untie_unknown(worker, [known[0].id])) == []


async def test_a_job_in_a_bundle_is_seen_wherever_jobs_are_seen(scene: Scene) -> None:
    """Listings, counts, what holds it up, its worker, a feed and whoever waits for it."""
    ids = await scene.enqueue(3, tags=["seen"])
    worker = await scene.worker()
    claimed = await claim(scene, worker, limit=3, free=1)
    operator = Operator(scene.db.database, "tester")
    for state, expected in ((JobState.RUNNING, ids[:1]), (JobState.CLAIMED, ids[1:])):
        chosen = JobFilter(states=(state,), worker_id=worker, tags=("seen",), kind=KIND, queue="default")
        assert sorted(job.id for job in await operator.jobs.find(chosen)) == expected
        assert await operator.jobs.count(chosen) == len(expected)
    [row] = await scene.db.fetch(
        "select state, run_at = created_at from holdfast.job_overview where id = $1", ids[0]
    )
    assert row == ("running", True)
    record = await scene.run(overview.job_record(ids[0]))
    assert record is not None
    assert (record.state, record.attempt, record.worker_id) == (JobState.RUNNING, 1, worker)
    assert record.run_at == record.created_at
    assert [attempt.number for attempt in record.attempts] == [1]
    end = await scene.run(jobs.job_end(ids[1]))
    assert end is not None
    assert end.state is JobState.CLAIMED
    living = await scene.run(jobs.living_jobs(ids))
    assert sorted(living) == ids
    [shown] = await operator.workers.find()
    assert (shown.running, shown.claimed) == (1, 2)
    assert await scene.db.value("select holdfast.bundled_in('default')") == 3
    await complete(scene, claimed, claimed[1])
    assert await scene.db.value("select holdfast.bundled_in('default')") == 2
    living = await scene.run(jobs.living_jobs(ids))
    assert sorted(living) == [ids[0], ids[2]]


async def test_a_job_in_a_bundle_counts_under_a_limit(scene: Scene) -> None:
    """A limit that comes later is not exceeded by what was claimed before."""
    await scene.enqueue(5)
    worker = await scene.worker()
    claimed = await claim(scene, worker, limit=2)
    await scene.db.fetch("update holdfast.queues set max_running = 3")
    assert len(await scene.claim_limited(worker, free=3)) == 1
    await complete(scene, claimed, claimed[0])
    assert len(await scene.claim_limited(worker, free=3)) == 1


async def keyed(scene: Scene, worker_id: int, wanted: int = 10) -> list[ClaimedJob]:
    """Claim from the queue under its limits, into bundles."""
    demand = Demand(worker_id=worker_id, queues=("default",), kinds=(KIND,), limit=wanted, free=wanted)
    return await scene.run(attempts.claim_limited(demand, (KIND,)))


async def test_keys_are_held_by_what_is_in_a_bundle(scene: Scene) -> None:
    """Nobody else gets a job of such a key, by either way of looking for one, before the end is written."""
    worker, other = await scene.worker(), await scene.worker()
    for key in ("a", "b", "c"):
        await scene.enqueue(2, concurrency_key=key)
    [alone] = await scene.enqueue()
    claimed = await keyed(scene, worker)
    assert sorted(job.id for job in claimed if job.tie) == [1, 3, 5, alone]
    assert await scene.db.value(
        "select array_agg(concurrency_key order by 1) from holdfast.bundled_jobs"
    ) == [
        "a",
        "b",
        "c",
        None,
    ]
    assert await keyed(scene, other) == await scene.claim_limited(other) == []
    await complete(scene, claimed, claimed[0])
    assert [job.id for job in await keyed(scene, other)] == [2]
    assert await scene.run(bundles.untie_jobs([3])) == [3]
    assert await scene.db.value("select concurrency_key from holdfast.live_jobs where job_id = 3") == "b"
    assert await scene.claim_limited(other) == []
    shown = await scene.run(overview.job_standings([4], 10))
    assert shown[4].key_running == 1


async def test_a_queue_with_a_limit_for_the_fleet_knows_no_bundles(scene: Scene) -> None:
    """There permits go from job to job, which takes rows."""
    worker = await scene.worker()
    await scene.enqueue(3)
    await scene.db.fetch("update holdfast.queues set max_running = 2")
    demand = Demand(worker_id=worker, queues=("default",), kinds=(KIND,), limit=3, free=3)
    claimed = await scene.run(attempts.claim_limited(demand, (KIND,)))
    assert [job.tie for job in claimed] == [None, None]


async def test_an_end_is_not_written_to_another_bundle_of_the_same_number(scene: Scene) -> None:
    """A standby that took over may have lost a claim, and have given the number of its bundle again."""
    worker = await scene.worker()
    await scene.enqueue(6)
    jobs_there = await claim(scene, worker, limit=3)
    await scene.db.fetch("update holdfast.bundles set job_ids = '{4,5,6}'")
    assert await complete(scene, jobs_there) == []
    await scene.db.fetch("update holdfast.bundles set job_ids = '{1,2}', keys = keys[:2], gone = b'00'")
    assert await complete(scene, jobs_there, jobs_there[0]) == []
    assert await scene.db.value("select count(*) from holdfast.finished_jobs") == 0


async def test_jobs_that_leave_their_bundle_during_a_claim_count_all_the_same(scene: Scene) -> None:
    """Under a limit that was set while they were in it: each is in the bundle or has a row, never neither."""
    most = 0
    for _ in range(100):
        await scene.db.fetch("update holdfast.queues set max_running = null")
        worker, other = await scene.worker(), await scene.worker()
        first, second = await scene.session(), await scene.session()
        before = await scene.enqueue(10)
        bundled = {job.id for job in await claim(scene, worker, limit=5) if job.tie}
        assert bundled == {*before[:5]}
        await scene.db.fetch("update holdfast.queues set max_running = 6")
        for connection in (first, second):
            await connection.execute("select 1")
        _, taken = await asyncio.gather(
            scene.run(bundles.untie_jobs([*bundled]), first),
            scene.claim_limited(other, connection=second),
        )
        most = max(most, len(taken))
        for connection in (first, second):
            await connection.close()
        await scene.db.fetch("delete from holdfast.live_jobs returning 1")
    assert most == 1


@pytest.mark.parametrize("many", [False, True])
async def test_a_job_in_a_bundle_can_be_cancelled(scene: Scene, many: bool) -> None:
    """Its worker is asked to stop it, and it alone leaves the bundle."""
    ids = await scene.enqueue(3)
    worker = await scene.worker()
    claimed = await claim(scene, worker, free=3)
    operator = Operator(scene.db.database, "tester")
    if many:
        stroke = await operator.jobs.stroke(Intervention.CANCEL, JobFilter(kind=KIND), None, before=None)
        assert stroke.swept.changed == 3
        assert (await stand(scene))[:2] == (ids, [])
    else:
        async with holdfast.Client(scene.db.dsn, schema=scene.db.schema) as client:
            assert await client.cancel(ids[1]) is False
        assert (await stand(scene))[:2] == ([ids[1]], [ids[0], ids[2]])
    requests = await scene.run(attempts.cancel_requests([fence(job) for job in claimed]))
    assert [one.job_id for one in requests] == (ids if many else [ids[1]])


async def test_a_sweep_finds_what_left_its_bundle_behind_its_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker has it take rows of its own between the first look and the next."""
    ids = await scene.enqueue(3)
    await claim(scene, await scene.worker(), free=3)
    run = Database.run

    async def overtaken(self: Database, statement: Statement[Any], connection: Any = None) -> Any:
        answer = await run(self, statement, connection)
        if statement.name == "cancel_jobs":
            await run(self, bundles.untie_jobs(ids))
        return answer

    monkeypatch.setattr(Database, "run", overtaken)
    operator = Operator(scene.db.database, "tester")
    stroke = await operator.jobs.stroke(Intervention.CANCEL, JobFilter(kind=KIND), None, before=None)
    assert stroke.swept.changed == 3
    requested = "select count(*) from holdfast.live_jobs where cancel_requested_at is not null"
    assert await scene.db.value(requested) == 3


async def _ended(scene: Scene, claimed: list[ClaimedJob]) -> None:
    await complete(scene, claimed, claimed[0])


async def _taken_out(scene: Scene, claimed: list[ClaimedJob]) -> None:
    await scene.run(bundles.untie_jobs([claimed[0].id]))


async def _given_back(scene: Scene, claimed: list[ClaimedJob]) -> None:
    await _taken_out(scene, claimed)
    back = Returned(fence(claimed[0]), PutBack(Outcome.RELEASED, 0.0, False, "for a test", None))
    assert await scene.run(attempts.put_back_jobs([back])) == [claimed[0].id]


async def _running_again(scene: Scene, claimed: list[ClaimedJob]) -> None:
    await _given_back(scene, claimed)
    assert len(await claim(scene, await scene.worker())) == 1


async def _another_one(scene: Scene, claimed: list[ClaimedJob]) -> None:
    await complete(scene, claimed)
    await scene.enqueue(2)
    await claim(scene, await scene.worker())


@pytest.mark.parametrize("before", [_ended, _taken_out, _given_back, _running_again, _another_one])
async def test_who_has_left_a_bundle_changes_nothing_by_it(scene: Scene, before: Any) -> None:
    """Not one row of any table differs after an end that comes too late."""
    await scene.enqueue(2)
    claimed = await claim(scene, await scene.worker())
    await before(scene, claimed)
    dump = await scene.dump()
    assert await complete(scene, claimed, claimed[0], result='"late"') == []
    assert await scene.dump() == dump


async def test_whatever_happens_at_once_each_job_stands_in_one_place_and_ends_once(scene: Scene) -> None:
    """Workers, cancels and rescues at the same jobs, in sessions of their own and in every order."""
    rolls = random.Random(20261127)  # noqa: S311 - chooses what a test does
    total = 600
    ids = await scene.enqueue(total, max_attempts=10_000)
    term = await scene.lead()
    ended = list[int]()

    async def work() -> None:
        session = await scene.session()
        while len(ended) < total:
            worker = await scene.worker()
            while claimed := await claim(scene, worker, limit=25, free=3, connection=session):
                places = ties(claimed)
                rolls.shuffle(claimed)
                for first in range(0, len(claimed), 10):
                    part = claimed[first : first + 10]
                    bundled = [
                        (places[job.id], Ended(fence(job), Complete(), 0.0))
                        for job in part
                        if job.id in places
                    ]
                    if bundled and rolls.random() < 0.9:
                        written = await scene.run(bundles.complete_bundled(bundled), session)
                        ended.extend(written)
                    written = await scene.complete(*part, connection=session)
                    ended.extend(written)
                if rolls.random() < 0.2:
                    break
            await scene.db.fetch(
                "update holdfast.workers set state = 'lost', ended_at = holdfast.now() where id = $1", worker
            )

    async def meddle() -> None:
        session = await scene.session()
        while len(ended) < total:
            chosen = rolls.sample(ids, 7)
            await scene.run(bundles.untie_jobs(chosen), session)
            await scene.run(bundles.untie_orphans(term, 2), session)
            await scene.run(workers.rescue_jobs(term, 50), session)
            live, bundled, finished = await stand(scene)
            assert sorted(live + bundled + finished) == ids

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(meddle())
        group.create_task(meddle())
        for _ in range(4):
            group.create_task(work())
    assert sorted(ended) == ids
    assert await stand(scene) == ([], [], ids)
    assert await scene.db.value("select count(*) from holdfast.bundles") == 0
