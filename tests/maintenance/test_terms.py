"""A leader whose term is over can change nothing, whatever it still believes."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import resources
from typing import Any

import pytest

from holdfast.model.schedule import Schedule
from holdfast.store import (
    assignments,
    audit,
    bundles,
    counts,
    deliveries,
    leader,
    offers,
    partitions,
    prune,
    request_keys,
    schedules,
    tokens,
    workers,
)
from holdfast.store.counts import UnknownJobs
from holdfast.store.partitions import Partition
from holdfast.store.prune import Retention
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement
from tests.store.scene import Scene

Make = Callable[[int, Any], Statement[Any]]

# Every statement that only a leader may run, made for a term and the world below.
DUTIES: dict[str, Make] = {
    "stage_jobs": lambda term, _: leader.stage_jobs(term, 10),
    "declare_lost": lambda term, _: workers.declare_lost(term),
    "untie_orphans": lambda term, _: bundles.untie_orphans(term, 10),
    "rescue_jobs": lambda term, _: workers.rescue_jobs(term, 10),
    "clear_workers": lambda term, _: workers.clear_workers(term, 10),
    "move_schedule": lambda term, world: schedules.move_schedule(
        term, world["schedule"], world["now"] + timedelta(hours=1)
    ),
    "make_partition": lambda term, world: partitions.make_partition(
        term, Partition("job_logs", (world["now"] + timedelta(days=9)).date())
    ),
    "drop_partition": lambda term, _: partitions.drop_partition(term, "finished_completed_20200101"),
    "prune_jobs": lambda term, world: prune.prune_jobs(
        term, Retention(("completed",), None, world["now"]), limit=10
    ),
    "prune_logs": lambda term, _: prune.prune_logs(term, 86_400.0, 10),
    "prune_chunks": lambda term, _: prune.prune_chunks(term, 86_400.0, 10),
    "plan_deliveries": lambda term, world: deliveries.plan_deliveries(
        term, world["now"], 10, window=86_400.0
    ),
    "prune_deliveries": lambda term, _: deliveries.prune_deliveries(term, 86_400.0, 10),
    "prune_attempts": lambda term, _: prune.prune_attempts(term, 86_400.0, 10),
    "prune_activities": lambda term, _: prune.prune_activities(term, 86_400.0, 10),
    "prune_tokens": lambda term, _: tokens.prune_tokens(term, 86_400.0, 10),
    "prune_requests": lambda term, _: request_keys.prune_requests(term, 86_400.0, 10),
    "prune_enqueues": lambda term, _: audit.prune_enqueues(term, 86_400.0, 10),
    "expire_offers": lambda term, _: offers.expire_offers(term, 60.0, 10),
    "unpin_jobs": lambda term, _: offers.unpin_jobs(term, 10),
    "take_stalled": lambda term, _: assignments.take_stalled(term, 10),
    "prune_routes": lambda term, _: prune.prune_routes(term, 0, 10),
    "prune_workers": lambda term, _: prune.prune_workers(term, 86_400.0),
    "count_jobs": lambda term, _: counts.count_jobs(term, 3600.0),
    "fail_unknown": lambda term, _: counts.fail_unknown(
        term, UnknownJobs("default", "mystery"), grace=3600.0, limit=10
    ),
}


async def world(scene: Scene) -> dict[str, Any]:
    """A world in which every duty has something to do."""
    db = scene.db
    now = await scene.run(schedules.read_clock())
    old = now - timedelta(days=90)
    await scene.enqueue(delay=3600.0)
    await db.fetch("update holdfast.live_jobs set run_at = holdfast.now() where state = 'scheduled'")
    await scene.enqueue(kind="mystery")
    await db.fetch("update holdfast.live_jobs set run_at = $1 where kind = 'mystery'", old)
    await db.fetch("update holdfast.jobs set created_at = $1 where kind = 'mystery'", old)
    attendant = await scene.worker()
    await db.fetch("update holdfast.workers set started_at = $2 where id = $1", attendant, old)
    for state in ("lost", "online"):
        job = await scene.one(dead := await scene.worker())
        await db.fetch(
            "update holdfast.workers set state = $2, ttl = '0', expires_at = '-infinity' where id = $1",
            dead,
            state,
        )
    (bundled,) = await scene.enqueue()
    await db.fetch(
        "insert into holdfast.bundles (worker_id, queue, kind, priority, claimed_at, running, job_ids, gone) "
        "select id, 'default', 'greet', 5, now(), 0, $1, '0' from holdfast.workers where state = 'lost'",
        [bundled],
    )
    await db.fetch("delete from holdfast.live_jobs where job_id = $1", bundled)
    ended = await scene.worker()
    await db.fetch("update holdfast.workers set state = 'offline', ended_at = $2 where id = $1", ended, old)
    await scene.complete(await scene.one(attendant))
    await db.fetch("update holdfast.finished_jobs set finished_at = $1", old)
    await db.fetch("insert into holdfast.job_logs values ($1, 1, 0, $2, 'info', 'old')", job.id, old)
    await db.fetch(
        "insert into holdfast.log_chunks (job_id, attempt, stream, byte_offset, length, at) "
        "values ($1, 1, 'stdout', 0, 1, $2)",
        job.id,
        old,
    )
    await db.fetch(
        "insert into holdfast.deliveries (endpoint_id, job_id, event, at, body, created_at) "
        "values (1, $1, 'job.completed', $2, '{}', $2)",
        job.id,
        old,
    )
    await remains(scene, old)
    await held_by_a_runner(scene, old)
    await db.fetch("select holdfast.make_partition('finished_completed', '2020-01-01')")
    await scene.run(schedules.put_schedule(Schedule(name="s", kind="k", cron="* * * * *"), now))
    (schedule,) = await scene.run(schedules.list_schedules())
    return {"now": now, "schedule": schedule}


async def remains(scene: Scene, old: datetime) -> None:
    """What long runs, machines and requests left behind."""
    db = scene.db
    (run,) = await scene.enqueue(delay=3600.0)
    await db.fetch(
        "insert into holdfast.attempts (job_id, attempt, outcome, ended_at) values ($1, 1, 'suspended', $2)",
        run,
        old,
    )
    await db.fetch(
        "insert into holdfast.activities (run_id, attempt, branch, place, step, try, started_at, seconds) "
        "values ($1, 1, 'main', 0, 'step', 1, $2, 0)",
        run,
        old,
    )
    await db.fetch(
        "insert into holdfast.tokens (name, sha256, role, worker_id, created_by, created_at, expires_at) "
        "values ('machine', sha256('a'), 'runner', 1, 'ada', $1, $1)",
        old,
    )
    await db.fetch(
        "insert into holdfast.audit_log (at, actor, action, subject, detail) "
        "values ($1, 'shop', 'job.enqueue', 'job 1', '{}')",
        old,
    )
    await db.fetch("select holdfast.route_for('default', 'nobody', '{}', null)")
    await db.fetch("insert into holdfast.request_keys values (1, 'key', sha256('a'), null, $1)", old)


async def held_by_a_runner(scene: Scene, old: datetime) -> None:
    """An offer that nobody accepted, a job without a sign of life, and one whose pin has run out."""
    db = scene.db
    runner = await scene.worker()
    offered, stalled = await scene.one(runner), await scene.one(runner)
    (pinned,) = await scene.enqueue(delay=3600.0)
    await db.fetch(
        "update holdfast.live_jobs set state = 'claimed', started_at = null where job_id = $1", offered.id
    )
    await db.fetch("update holdfast.workers set contact_at = $2 where id = $1", runner, old)
    for job in (offered, stalled):
        await db.fetch(
            "insert into holdfast.assignments (job_id, attempt, worker_id, term, offered_at, progressed_at) "
            "values ($1, $2, $3, 1, $4, $4)",
            job.id,
            job.attempt,
            runner,
            old,
        )
    await db.fetch("update holdfast.assignments set accepted_at = $2 where job_id = $1", stalled.id, old)
    await db.fetch(
        "insert into holdfast.placements (job_id, runner, pinned_until, stall_limit, spec_sha256) "
        "values ($1, null, null, '1 minute', ''), ($2, 'r', $3, null, '')",
        stalled.id,
        pinned,
        old,
    )


async def everything(scene: Scene) -> tuple[dict[str, list[str]], list[tuple[Any, ...]]]:
    """All rows and all tables."""
    tables = "select relname from pg_class where relnamespace = to_regnamespace($1) order by 1"
    return await scene.dump(), await scene.db.fetch(tables, scene.db.schema)


@pytest.mark.parametrize("name", DUTIES)
async def test_a_stale_term_changes_nothing_and_a_current_one_does(scene: Scene, name: str) -> None:
    """The statement of a former leader leaves all rows and tables as they were, a present one's does not."""
    facts = await world(scene)
    stale = await scene.lead()
    await scene.db.fetch("update holdfast.leader set expires_at = '-infinity', holder = ''")
    current = await scene.lead()
    assert current == stale + 1
    before = await everything(scene)
    await scene.run(DUTIES[name](stale, facts))
    assert await everything(scene) == before
    await scene.run(DUTIES[name](current, facts))
    assert await everything(scene) != before


@pytest.mark.parametrize("name", DUTIES)
async def test_a_term_that_has_run_out_changes_nothing(scene: Scene, name: str) -> None:
    """A leader that nobody has followed yet, and that did not renew, is no leader either."""
    facts = await world(scene)
    term = await scene.lead()
    await scene.db.fetch("update holdfast.leader set expires_at = holdfast.now()")
    before = await everything(scene)
    await scene.run(DUTIES[name](term, facts))
    assert await everything(scene) == before


def test_every_statement_of_a_leader_is_listed() -> None:
    """A new duty cannot be forgotten here: whatever claims to be only for the leader is in the table."""
    nouns = [
        entry.name.removesuffix(".sql")
        for entry in resources.files("holdfast.store").joinpath("sql").iterdir()
        if entry.name.endswith(".sql")
    ]
    fenced = {
        name
        for noun in nouns
        for name, text in blocks(noun).items()
        if re.search(r"d\.term = \$1|Only for the leader", text)
    }
    assert fenced == DUTIES.keys()
