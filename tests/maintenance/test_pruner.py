"""Old history goes, in batches and with all that belongs to it; what lives or is young stays."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.client.delivery_operator import DeliveryOperator
from holdfast.maintenance.pruner import FIRST_REST, Pruner
from holdfast.model.audit import Mandate
from holdfast.store import interventions, prune
from holdfast.store.database import Database
from holdfast.store.prune import Retention
from holdfast.store.sqlfile import rendered
from holdfast.testing import Clock, Probe
from tests.maintenance.history import DAY, ended, make_day, remains
from tests.store.scene import Scene

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# The first moments that are kept: completed jobs 14 whole days, others 30.
KEPT_COMPLETED = datetime(2026, 1, 17, tzinfo=UTC)
KEPT_FAILED = datetime(2026, 1, 1, tzinfo=UTC)


SLOW = """
create function holdfast.slow() returns trigger language plpgsql as $$
begin
    perform pg_sleep(0.02);
    return old;
end
$$"""
IS_SLOW = "create trigger slow before delete on holdfast.jobs for each row execute function holdfast.slow()"


async def test_who_begins_a_term_rests_before_it_prunes(scene: Scene, clock: Clock, duty: Any) -> None:
    """Who has just started has jobs to see to, and what is old is in no hurry."""
    await clock.set(NOON)
    await ended(scene, NOON - 20 * DAY)
    pruner = duty(Pruner, prune_rest=300.0)
    pruner.leadership.term = await scene.lead()
    assert await pruner.turn() == FIRST_REST
    assert all((await remains(scene)).values())
    await pruner.turn()
    assert not any((await remains(scene)).values())


async def test_a_job_goes_with_all_that_belongs_to_it(scene: Scene, clock: Clock, duty: Any) -> None:
    """Row, attempts, checkpoint, log lines and end: nothing of the old job, everything of the young one."""
    await clock.set(NOON)
    await ended(scene, NOON - 20 * DAY)
    (young,) = await ended(scene, NOON - DAY)
    await duty(Pruner).lead(await scene.lead())
    assert all(ids == {young} for ids in (await remains(scene)).values())


@pytest.mark.parametrize(
    ("outcome", "limit"), [("completed", KEPT_COMPLETED), ("failed", KEPT_FAILED), ("cancelled", KEPT_FAILED)]
)
async def test_the_retention_counts_in_whole_days(
    scene: Scene, clock: Clock, duty: Any, outcome: str, limit: datetime
) -> None:
    """The last second before the limit goes, the first one after it stays."""
    await clock.set(NOON)
    await ended(scene, limit - SECOND, outcome=outcome)
    (kept,) = await ended(scene, limit, outcome=outcome)
    await duty(Pruner).lead(await scene.lead())
    assert (await remains(scene))["jobs"] == {kept}


async def test_settings_change_the_retention(scene: Scene, clock: Clock, duty: Any) -> None:
    """Each half of history has its own."""
    await clock.set(NOON)
    await ended(scene, NOON - 3 * DAY)
    (failed,) = await ended(scene, NOON - 3 * DAY, outcome="failed")
    pruner = duty(Pruner, retention_completed=86_400.0, retention_failed=5 * 86_400.0)
    await pruner.lead(await scene.lead())
    assert (await remains(scene))["jobs"] == {failed}


async def test_shapes_of_jobs_that_nobody_has_are_forgotten(scene: Scene) -> None:
    """Each runner that jobs are pinned to makes one; those that are used, or are about to be, stay."""
    route = "select holdfast.route_for('default', 'command', '{}', $1)"
    routes = [await scene.db.value(route, f"runner {n}") for n in range(5)]
    (job_id,) = await scene.enqueue(1, delay=3600.0)
    await scene.db.fetch("update holdfast.live_jobs set route_id = $1 where job_id = $2", routes[1], job_id)
    session, term = await scene.session(), await scene.lead()
    assert await scene.run(prune.prune_routes(term, 5, 10)) == 0
    async with session.transaction():
        assert await scene.execute(session, route, "runner 3") == routes[3]
        assert await scene.run(prune.prune_routes(term, 4, 2)) == 2
        assert await scene.run(prune.prune_routes(term, 0, 10)) == 1
    assert await scene.db.fetch("select id from holdfast.routes order by id") == [
        (routes[1],),
        (routes[3],),
    ]


async def test_a_shape_that_is_being_forgotten_is_made_anew(scene: Scene) -> None:
    """Whoever needs it waits for that, and gets one that stays."""
    route = "select holdfast.route_for('default', 'command', '{}', 'one')"
    former = await scene.db.value(route)
    pruning, asking = await scene.session(), await scene.session()
    async with pruning.transaction():
        assert await scene.execute(pruning, "select holdfast.prune_routes(0, 10)") == 1
        asked = asyncio.create_task(scene.execute(asking, route))
        await scene.blocked(asking)
    assert await asked != former
    assert await scene.db.fetch("select id from holdfast.routes") == [(await asked,)]


async def test_live_jobs_and_their_attempts_are_never_touched(scene: Scene, clock: Clock, duty: Any) -> None:
    """A job may live for years: neither its attempts nor its checkpoint are history."""
    await clock.set(NOON - 400 * DAY)
    job = await scene.one()
    for text in (
        "insert into holdfast.attempts (job_id, attempt, outcome, ended_at) "
        "values ($1, 0, 'lost', holdfast.now())",
        "insert into holdfast.checkpoints values ($1, 1, 1, '{}', holdfast.now())",
    ):
        await scene.db.fetch(text, job.id)
    await clock.set(NOON)
    await duty(Pruner).lead(await scene.lead())
    left = await remains(scene)
    assert (left["jobs"], left["attempts"], left["checkpoints"]) == ({job.id}, {job.id}, {job.id})
    assert await scene.states() == {job.id: "running"}


async def test_a_job_that_was_taken_up_again_is_not_pruned_for_its_former_end(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """An operator's retry makes history live again, attempts and all."""
    await clock.set(NOON)
    (job_id,) = await ended(scene, NOON - 40 * DAY, outcome="failed")
    await scene.run(interventions.retry_jobs([job_id], Mandate("tester")))
    await duty(Pruner).lead(await scene.lead())
    assert await scene.states() == {job_id: "available"}
    assert job_id in (await remains(scene))["attempts"]


async def test_a_job_that_lives_beside_a_row_of_its_end_loses_only_that_row(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """However such a pair came about, what lives is not deleted."""
    await clock.set(NOON)
    (job_id,) = await ended(scene, NOON - 20 * DAY)
    await scene.db.fetch(
        "insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at) "
        "values ($1, 'default', 'greet', 5, 'available', holdfast.now())",
        job_id,
    )
    await duty(Pruner).lead(await scene.lead())
    left = await remains(scene)
    assert left.pop("finished_jobs") == set()
    assert all(ids == {job_id} for ids in left.values())


async def test_a_retry_under_way_is_left_alone(scene: Scene, clock: Clock, duty: Any) -> None:
    """Prune and retry never take the same job: whoever is second passes it over or finds nothing."""
    await clock.set(NOON)
    job_id, other = await ended(scene, NOON - 40 * DAY, 2, outcome="failed")
    session = await scene.session()
    retrying = session.transaction()
    await retrying.start()
    await scene.run_on(session, interventions.retry_jobs([job_id], Mandate("tester")))
    await duty(Pruner).lead(await scene.lead())
    await retrying.commit()
    assert await scene.states() == {job_id: "available"}
    assert other not in (await remains(scene))["jobs"]


async def test_a_retry_that_comes_after_the_prune_finds_nothing(scene: Scene, clock: Clock) -> None:
    """A retry that waits for a prune to commit does not bring half a job back to life."""
    await clock.set(NOON)
    (job_id,) = await ended(scene, NOON - 40 * DAY, outcome="failed")
    term, session = await scene.lead(), await scene.session()
    pruning = session.transaction()
    await pruning.start()
    await scene.run_on(session, prune.prune_jobs(term, Retention(("failed",), None, NOON), limit=10))
    other = await scene.session()
    retrying = asyncio.create_task(scene.run_on(other, interventions.retry_jobs([job_id], Mandate("tester"))))
    await scene.blocked(other)
    await pruning.commit()
    await asyncio.gather(retrying, return_exceptions=True)
    assert await scene.db.value("select count(*) from holdfast.live_jobs") == 0
    assert not any((await remains(scene)).values())


async def test_much_history_goes_in_batches(scene: Scene, clock: Clock, duty: Any, probe: Probe) -> None:
    """One pass takes batch after batch, from daily partitions and the default one alike."""
    await clock.set(NOON)
    await make_day(scene, "finished_completed", NOON - 20 * DAY)
    for days in (20, 21):
        await ended(scene, NOON - days * DAY, 1250)
    (young,) = await ended(scene, NOON)
    await duty(Pruner, prune_batch=100).lead(await scene.lead())
    assert all(ids == {young} for ids in (await remains(scene)).values())
    assert [told["count"] for told in probe.seen("jobs.pruned")] == [2500]


async def test_a_batch_is_no_larger_than_asked_for(scene: Scene, clock: Clock) -> None:
    """The oldest ids go first, and the answer says where to go on."""
    await clock.set(NOON)
    job_ids = await ended(scene, NOON - 20 * DAY, 5)
    term, retention = await scene.lead(), Retention(("completed",), None, NOON)
    first = await scene.run(prune.prune_jobs(term, retention, limit=2))
    assert (first.count, first.last_id) == (2, job_ids[1])
    assert (await remains(scene))["jobs"] == set(job_ids[2:])
    rest = await scene.run(prune.prune_jobs(term, retention, after=job_ids[2], limit=10))
    assert rest.count == 2
    assert (await remains(scene))["jobs"] == {job_ids[2]}


async def test_a_queue_may_keep_its_history_for_a_shorter_time(scene: Scene, clock: Clock, duty: Any) -> None:
    """A queue's own retention holds for every outcome, to the second; a longer one changes nothing."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.queues (name, retention) values ('short', '1 hour'), ('long', '1 year')"
    )
    hour = timedelta(hours=1)
    kept: set[int] = set()
    for outcome in ("completed", "failed", "cancelled"):
        await ended(scene, NOON - hour - SECOND, queue="short", outcome=outcome)
        kept |= {*await ended(scene, NOON - hour, queue="short", outcome=outcome)}
        kept |= {*await ended(scene, NOON - 2 * hour, outcome=outcome)}
    await ended(scene, NOON - 20 * DAY, queue="long")
    await duty(Pruner).lead(await scene.lead())
    assert (await remains(scene))["jobs"] == kept


async def test_later_passes_find_what_has_grown_old_since(scene: Scene, clock: Clock, duty: Any) -> None:
    """The pruner remembers how far it came with a queue, and misses nothing for that."""
    await clock.set(NOON)
    await scene.db.fetch("insert into holdfast.queues (name, retention) values ('short', '1 hour')")
    pruner, left = duty(Pruner), []
    for minute in (0, 30, 70, 300):
        await ended(scene, NOON + timedelta(minutes=minute), queue="short")
        await clock.set(NOON + timedelta(minutes=minute))
        await pruner.lead(await scene.lead())
        left.append(len((await remains(scene))["jobs"]))
    assert left == [1, 2, 2, 1]


async def test_the_same_leader_does_not_look_at_old_history_again(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Within a term a queue's own retention costs what has grown old; a new term looks at all once more."""
    await clock.set(NOON)
    await scene.db.fetch("insert into holdfast.queues (name, retention) values ('short', '1 hour')")
    term, pruner = await scene.lead(), duty(Pruner)
    await pruner.lead(term)
    (planted,) = await ended(scene, NOON - 5 * DAY, queue="short")
    await pruner.lead(term)
    assert (await remains(scene))["jobs"] == {planted}
    await scene.db.fetch("update holdfast.leader set expires_at = '-infinity', holder = ''")
    pruner.leadership.term = await scene.lead()
    assert await pruner.turn() == FIRST_REST
    await pruner.turn()
    assert (await remains(scene))["jobs"] == set()


async def _child_of(scene: Scene, parent: int, child: int) -> None:
    await scene.db.fetch(
        "update holdfast.finished_jobs set parent_id = $1, family_id = $2 where job_id = $2", parent, child
    )


@pytest.mark.parametrize(
    ("outcome", "is_kept"), [("completed", False), ("failed", True), ("cancelled", True)]
)
async def test_a_child_is_kept_while_its_parent_may_be_taken_up_again(
    scene: Scene, clock: Clock, duty: Any, outcome: str, is_kept: bool
) -> None:
    """A run that is retried wants the results of its children; once it is history, so are they."""
    await clock.set(NOON)
    (parent,) = await ended(scene, NOON - 20 * DAY, outcome=outcome)
    (child,) = await ended(scene, NOON - 20 * DAY)
    await _child_of(scene, parent, child)
    await duty(Pruner).lead(await scene.lead())
    assert (await remains(scene))["jobs"] == ({parent, child} if is_kept else set())
    await clock.set(NOON + 20 * DAY)
    pruner, term = duty(Pruner), await scene.lead()
    for _ in range(2):
        await pruner.lead(term)
    assert (await remains(scene))["jobs"] == set()


async def test_a_child_that_was_kept_for_its_parent_is_not_forgotten(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """With a retention of a queue, passes within a day do not look at old history; the next day's do."""
    await clock.set(NOON)
    await scene.db.fetch("insert into holdfast.queues (name, retention) values ('short', '1 hour')")
    parent = await scene.one()
    (child,) = await ended(scene, NOON - 2 * DAY, queue="short")
    await _child_of(scene, parent.id, child)
    pruner, term = duty(Pruner), await scene.lead()
    await scene.db.fetch("update holdfast.leader set expires_at = 'infinity'")
    await pruner.lead(term)
    await scene.db.fetch("delete from holdfast.live_jobs where job_id = $1", parent.id)
    left = []
    for hours in (1, 12):
        await clock.set(NOON + timedelta(hours=hours))
        await pruner.lead(term)
        left.append(child in (await remains(scene))["jobs"])
    assert left == [True, False]


@pytest.mark.parametrize("is_told", [True, False])
async def test_an_end_that_somebody_is_to_be_told_of_is_kept_until_then(
    scene: Scene, clock: Clock, duty: Any, is_told: bool
) -> None:
    """After a long stand-still the pruner may come by before the deliverer does."""
    await clock.set(NOON - 25 * DAY)
    if is_told:
        await DeliveryOperator(scene.db.database, "me").add("hub", "https://example.com")
    await ended(scene, NOON - 26 * DAY)
    (late,) = await ended(scene, NOON - 24 * DAY)
    await clock.set(NOON)
    term = await scene.lead()
    await duty(Pruner).lead(term)
    assert (await remains(scene))["jobs"] == ({late} if is_told else set())
    await scene.db.fetch("update holdfast.delivery_places set moment = holdfast.now()")
    await duty(Pruner).lead(term)
    assert (await remains(scene))["jobs"] == set()


async def test_old_log_lines_outside_the_partitions_go(scene: Scene, clock: Clock, duty: Any) -> None:
    """Lines of jobs that still live go with their day, and are swept where no partition has that day."""
    await clock.set(NOON)
    job = await scene.one()
    for at in (KEPT_FAILED - SECOND, KEPT_FAILED):
        await scene.db.fetch("insert into holdfast.job_logs values ($1, 1, 0, $2, 'info', 'x')", job.id, at)
        await scene.db.fetch(
            "insert into holdfast.log_chunks (job_id, attempt, stream, byte_offset, length, at) "
            "values ($1, 1, 'stdout', 0, 1, $2)",
            job.id,
            at,
        )
    await duty(Pruner, prune_batch=1).lead(await scene.lead())
    assert await scene.db.fetch("select at from holdfast.job_logs") == [(KEPT_FAILED,)]
    assert await scene.db.fetch("select at from holdfast.log_chunks") == [(KEPT_FAILED,)]


async def test_rows_of_workers_go_with_the_longest_retention(scene: Scene, clock: Clock, duty: Any) -> None:
    """Whoever is online or holds a job stays, and whoever a kept job may still name."""
    await clock.set(NOON)
    online, holding, gone, lately = [await scene.worker() for _ in range(4)]
    await scene.one(holding)
    for worker, days in ((holding, 31), (gone, 31), (lately, 29)):
        await scene.db.fetch(
            "update holdfast.workers set state = 'lost', ended_at = $2 where id = $1",
            worker,
            NOON - days * DAY,
        )
    await duty(Pruner).lead(await scene.lead())
    assert await scene.db.fetch("select id from holdfast.workers order by id") == [
        (online,),
        (holding,),
        (lately,),
    ]


async def test_young_partitions_are_not_even_opened(scene: Scene, clock: Clock) -> None:
    """Pruning what is old costs the same however much is young."""
    await clock.set(NOON)
    for days in range(20):
        await make_day(scene, "finished_completed", NOON - days * DAY)
    statement = prune.prune_jobs(
        await scene.lead(), Retention(("completed",), None, NOON - 15 * DAY), limit=100
    )
    text = "explain (analyze, format json) " + rendered(statement.text, scene.db.schema)
    async with scene.db.database.connection() as connection:
        plan = json.loads(await connection.fetchval(text, *statement.parameters))
    opened = set(relations(plan[0]["Plan"]))
    finished = {name for name in opened if name.startswith("finished")}
    # Five days, the day of the limit, and the default partition.
    assert len(finished) <= 7
    assert "finished_completed_20260131" not in finished
    assert not any(name.startswith("finished_unhappy") for name in finished)


def relations(plan: dict[str, Any]) -> list[str]:
    """The tables that a plan has really read, from top to bottom."""
    own = [plan["Relation Name"]] if plan.get("Actual Loops") and "Relation Name" in plan else []
    return own + [name for child in plan.get("Plans", ()) for name in relations(child)]


async def test_answers_to_requests_are_forgotten_after_a_day(scene: Scene, clock: Clock, duty: Any) -> None:
    """Until then a repeated request gets the same answer."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.request_keys (token_id, key, sha256, answer, created_at) "
        "select 0, n::text, sha256('x'), '[]', $1::timestamptz - n * interval '1 hour' "
        "from generate_series(23, 26) n",
        NOON,
    )
    await duty(Pruner).lead(await scene.lead())
    assert await scene.db.fetch("select key from holdfast.request_keys order by key") == [("23",), ("24",)]


async def test_who_enqueued_what_is_forgotten_with_the_oldest_history(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """After 30 days, the longest retention; what operators did stays for ever."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.audit_log (at, actor, action, subject, detail) "
        "select $1::timestamptz - make_interval(days => days), 'shop', action, days::text, '{}' "
        "from (values (29, 'job.enqueue'), (31, 'job.enqueue'), (400, 'job.cancel')) as t (days, action)",
        NOON,
    )
    await duty(Pruner).lead(await scene.lead())
    left = await scene.db.fetch("select subject from holdfast.audit_log order by subject")
    assert left == [("29",), ("400",)]


async def test_ended_tokens_of_machines_are_forgotten(scene: Scene, clock: Clock, duty: Any) -> None:
    """Those of people stay, for the audit log names them; so does whatever is valid or young."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.tokens "
        "(name, sha256, role, worker_id, created_by, created_at, revoked_at, expires_at) "
        "select name, sha256(name::bytea), role, worker_id, 'test', $1::timestamptz - interval '90 days', "
        "       $1::timestamptz - make_interval(days => revoked), "
        "       $1::timestamptz - make_interval(days => expired) "
        "from (values ('box', 'runner', 1, 31, null), ('tin', 'runner', 2, null, 31), "
        "             ('jar', 'runner', 3, 29, null), ('pot', 'runner', 4, null::int, null::int), "
        "             ('ada', 'admin', null, 80, null)) "
        "  as t (name, role, worker_id, revoked, expired)",
        NOON,
    )
    await duty(Pruner).lead(await scene.lead())
    assert await scene.db.fetch("select name from holdfast.tokens order by name") == [
        ("ada",),
        ("jar",),
        ("pot",),
    ]


async def test_a_runner_that_was_away_for_long_goes_with_its_tokens(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """They neither end nor are they revoked, and nobody is left for whom they speak."""
    await clock.set(NOON)
    for name, ended_at in (("gone", KEPT_FAILED - DAY), ("away", NOON - DAY)):
        runner = await scene.worker()
        await scene.db.fetch(
            "update holdfast.workers set state = 'offline', ended_at = $2 where id = $1", runner, ended_at
        )
        await scene.db.fetch(
            "insert into holdfast.tokens (name, sha256, role, worker_id, created_by, created_at) "
            "values ($1::text, sha256($1::text::bytea), 'runner', $2, 'test', $3)",
            *(name, runner, ended_at),
        )
    await duty(Pruner).lead(await scene.lead())
    assert await scene.db.fetch("select name from holdfast.tokens") == [("away",)]
    assert await scene.db.value("select count(*) from holdfast.workers") == 1


async def test_what_an_endless_run_leaves_behind_goes_and_its_failures_stay(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """It would grow for ever; the number of its attempt counts on all the same."""
    await clock.set(NOON)
    job = await scene.one()
    for attempt, outcome, at in (
        (0, "suspended", KEPT_FAILED - SECOND),
        (1, "lost", KEPT_FAILED - SECOND),
        (2, "snoozed", KEPT_FAILED - SECOND),
        (3, "suspended", KEPT_FAILED),
    ):
        await scene.db.fetch(
            "insert into holdfast.attempts (job_id, attempt, outcome, ended_at) values ($1, $2, $3, $4)",
            *(job.id, attempt, outcome, at),
        )
        await scene.db.fetch(
            "insert into holdfast.activities (run_id, attempt, branch, place, step, try, started_at, "
            "seconds) values ($1, $2, 'main', 0, 'step', 1, $3, 0)",
            *(job.id, attempt, at),
        )
    await duty(Pruner, prune_batch=1).lead(await scene.lead())
    assert await scene.db.fetch("select attempt from holdfast.attempts order by 1") == [(1,), (3,)]
    assert await scene.db.fetch("select attempt from holdfast.activities") == [(3,)]
    assert await scene.states() == {job.id: "running"}


async def test_what_takes_longer_than_a_command_may_is_pruned_in_smaller_batches(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Jobs may weigh what they like: tried again as it was, the batch would never end."""
    await clock.set(NOON)
    await ended(scene, NOON - 20 * DAY, count=40)
    await scene.db.fetch(SLOW)
    await scene.db.fetch(IS_SLOW)
    pruner, term = duty(Pruner), await scene.lead()
    pruner.database = Database(replace(scene.db.config, command_timeout=0.5))
    await pruner.database.open()
    try:
        await pruner.lead(term)
    finally:
        await pruner.database.close()
    assert not any((await remains(scene)).values())
