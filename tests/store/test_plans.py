"""The plans of the hot statements: indexes only, however empty, full or unknown the tables are.

A plan that is made once lives until the next ANALYZE, so it must be right for tables that have grown since.
"""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from holdfast.model.job import NewJob
from holdfast.model.outcome import Suspend
from holdfast.rules.marks import from_the_start
from holdfast.store import attempts, jobs, runs
from holdfast.store.database import Connection, run_on
from holdfast.store.runs import Suspended
from holdfast.store.sessions import Sessions
from holdfast.store.sqlfile import blocks, rendered
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import Scene, fence

HOT = [
    ("attempts", "claim_jobs"),
    ("attempts", "claim_bundled"),
    ("attempts", "claim_announced"),
    ("attempts", "find_leftovers"),
    ("attempts", "claim_limited"),
    ("attempts", "complete_jobs"),
    ("bundles", "complete_bundled"),
    ("jobs", "job_end"),
    ("jobs", "living_jobs"),
    ("attempts", "finish_jobs"),
    ("attempts", "complete_one"),
    ("attempts", "put_back_jobs"),
    ("attempts", "start_jobs"),
    ("attempts", "report_progress"),
    ("checkpoints", "save_checkpoint"),
    ("attempts", "cancel_requests"),
    ("attempts", "held_attempts"),
    ("leader", "stage_jobs"),
    ("workers", "rescue_jobs"),
    ("interventions", "cancel_jobs"),
    ("logs", "append_logs"),
    ("steps", "load_steps"),
    ("steps", "save_steps"),
    ("signals", "take_signals"),
    ("runs", "suspend_runs"),
    ("offers", "open_routes"),
    ("offers", "lock_heads"),
    ("offers", "lock_keyed_heads"),
    ("offers", "lock_runners"),
    ("offers", "runners_room"),
    ("offers", "offer_jobs"),
    ("offers", "show_offers_again"),
    ("assignments", "held_assignments"),
    ("assignments", "note_life"),
    ("assignments", "end_facts"),
    ("runners", "hear_runners"),
]
# Written by the holders of attempts: each looks its rows up by job id, never among all that is held.
FENCED = (
    "claim_announced",
    "complete_jobs",
    "finish_jobs",
    "complete_one",
    "put_back_jobs",
    "start_jobs",
    "report_progress",
    "cancel_requests",
    "save_checkpoint",
    "append_logs",
    "save_steps",
    "suspend_runs",
    "note_life",
    "end_facts",
)
LARGE = frozenset({"jobs", "live_jobs", "steps", "signals"})
# A partial index of what workers hold at this moment: it is no larger than the fleet.
SMALL_INDEXES = frozenset({"live_jobs_held"})

# How the tables are filled: of *count* jobs one in *every* is available, one runs, the rest is scheduled.
FILL = """
    with made as (
        insert into holdfast.jobs (kind, queue, priority)
        select 'greet', case when n % 50 = 0 then 'rare' else 'default' end, n % 10
        from generate_series(1, $1::integer) n
        returning id, kind, queue, priority
    )
    insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at, worker_id, concurrency_key)
    select id, queue, kind, priority,
           case id % $2::integer when 0 then 'available' when 1 then 'running' else 'scheduled' end,
           now() + interval '1 day', case id % $2::integer when 1 then 1 end,
           case when id % 7 = 0 then 'key ' || id % 20 end
    from made"""
BACKLOG = """
    with made as (
        insert into holdfast.jobs (kind, queue)
        select 'greet', 'default' from generate_series(1, $1::integer)
        returning id, kind, queue, priority
    )
    insert into holdfast.live_jobs (job_id, queue, kind, priority, state, run_at)
    select id, queue, kind, priority, 'available', now() from made"""
ANALYZE = "analyze holdfast.jobs, holdfast.live_jobs"
EMPTY_AGAIN = "truncate holdfast.jobs, holdfast.live_jobs"
SHOWN = "select current_setting('plan_cache_mode'), current_setting('enable_seqscan')"
PLANNED_ANEW = "select custom_plans from pg_prepared_statements where statement like $1"
SEND = "select holdfast.send_signal($1::bigint, 'go')"

FILLINGS: dict[str, list[tuple[Any, ...]]] = {
    "empty, never analysed": [],
    "empty, analysed": [(ANALYZE,)],
    "emptied after it was large": [(FILL, 20_000, 100), (ANALYZE,), (EMPTY_AGAIN,), (ANALYZE,)],
    "small": [(FILL, 20, 4), (ANALYZE,)],
    "large, mostly scheduled": [(FILL, 100_000, 100), (ANALYZE,)],
    "large, never analysed": [(FILL, 100_000, 100)],
    "skewed backlog": [(BACKLOG, 100_000), (ANALYZE,)],
    "skewed backlog, never analysed": [(BACKLOG, 100_000)],
    "large since it was analysed small": [(FILL, 20, 4), (ANALYZE,), (BACKLOG, 50_000)],
}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan as EXPLAIN shows it."""
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def faults(plan: dict[str, Any]) -> list[str]:
    """Where a plan reads more of a large table than it needs."""
    found = []
    for node in nodes(plan):
        kind, index = node["Node Type"], node.get("Index Name")
        if node.get("Relation Name") not in LARGE or kind in ("ModifyTable", "LockRows"):
            continue
        if kind not in ("Index Scan", "Index Only Scan"):
            found.append(f"{kind} of {node['Relation Name']}")
        elif "Index Cond" not in node and index not in SMALL_INDEXES:
            found.append(f"all of {index}")
    return found


async def plan_of(connection: Connection, schema: str, noun: str, name: str) -> dict[str, Any]:
    """The generic plan of a block."""
    await connection.execute(f"prepare {name} as {rendered(blocks(noun)[name], schema)}")
    count = await connection.fetchval(
        "select cardinality(parameter_types) from pg_prepared_statements where name = $1", name
    )
    values = f"({', '.join(['null'] * count)})" if count else ""
    shown: dict[str, Any] = json.loads(
        await connection.fetchval(f"explain (format json) execute {name}{values}")
    )[0]["Plan"]
    return shown


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
@pytest.mark.parametrize("filling", FILLINGS)
async def test_hot_statements_read_by_index_only(db: ThrowawayDatabase, filling: str, version: int) -> None:
    """No hot statement reads a table from end to end, whatever PostgreSQL believes about it."""
    for text, *parameters in FILLINGS[filling]:
        await db.fetch(text, *parameters)
    connection = await db.database.connect()
    try:
        assert connection.get_server_version().major == version
        plans = {name: await plan_of(connection, db.schema, noun, name) for noun, name in HOT}
    finally:
        await connection.close()
    wrong = {name: found for name, plan in plans.items() if (found := faults(plan))}
    assert not wrong
    for name in FENCED:
        used = {
            node.get("Index Name") for node in nodes(plans[name]) if node.get("Relation Name") == "live_jobs"
        }
        assert used <= {None, "live_jobs_pkey"}, name
    # A claim walks the index of what is available from its head; without a limit it looks at no other.
    claim = [node for node in nodes(plans["claim_jobs"]) if node.get("Relation Name") == "live_jobs"]
    assert {node.get("Index Name") for node in claim} == {None, "live_jobs_available", "live_jobs_pkey"}
    assert not [node for node in nodes(plans["claim_jobs"]) if "Sort" in node["Node Type"]]


@pytest.mark.parametrize("filling", ["large, mostly scheduled", "large, never analysed", "skewed backlog"])
@pytest.mark.parametrize("name", ["queue_health", "route_health"])
async def test_the_doctor_walks_to_what_waits(db: ThrowawayDatabase, name: str, filling: str) -> None:
    """However long the lines of a queue are, their heads are enough."""
    for text, *parameters in FILLINGS[filling]:
        await db.fetch(text, *parameters)
    query = f"explain (analyze, timing off, format json) {rendered(blocks('doctor')[name], db.schema)}"
    shown = json.loads(await db.value(query))
    read = [node for node in nodes(shown[0]["Plan"]) if node.get("Relation Name") == "live_jobs"]
    assert {node["Node Type"] for node in read} <= {"Index Scan", "Index Only Scan"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) <= 4100


async def test_a_plan_made_on_empty_tables_still_serves_a_backlog(scene: Scene) -> None:
    """A claim that was planned while nothing was there touches five jobs of 50,000 later."""
    session = await scene.session()
    worker = await scene.worker()
    await plan_of(session, scene.db.schema, "attempts", "claim_jobs")
    after = ", ".join(map(str, from_the_start(["default"])))
    claim = f"execute claim_jobs ({worker}, '{{default}}', '{{greet}}', 5, 5, array[{after}], false)"
    assert await session.fetch(claim) == []
    await scene.db.fetch(BACKLOG, 50_000)
    shown = json.loads(await session.fetchval(f"explain (analyze, timing off, format json) {claim}"))
    assert faults(shown[0]["Plan"]) == []
    read = [node["Actual Rows"] for node in nodes(shown[0]["Plan"]) if node.get("Relation Name") in LARGE]
    assert max(read) == 5


async def test_a_handlers_own_transaction_is_planned_freely(db: ThrowawayDatabase) -> None:
    """The settings that pin our plans do not reach the statements of others."""
    async with db.database.transaction() as own:
        assert tuple(await own.fetchrow(SHOWN) or ()) == ("force_generic_plan", "off")
    sessions = Sessions(db.config, 1)
    try:
        async with sessions.transaction() as others:
            assert tuple(await others.fetchrow(SHOWN) or ()) == ("auto", "on")
    finally:
        await sessions.close()


async def test_an_end_in_a_handlers_own_transaction_is_planned_once(scene: Scene) -> None:
    """PostgreSQL makes five plans to compare; made anew for each job they cost more than all the rest."""
    await scene.db.fetch(BACKLOG, 10_000)
    await scene.db.fetch(ANALYZE)
    claimed = await scene.claim(await scene.worker(), limit=30)
    sessions = Sessions(scene.db.config, 1)
    try:
        for job in claimed:
            async with sessions.transaction() as own:
                ended = attempts.complete_one(fence(job), "1", 0.1)
                assert await run_on(own, ended, scene.db.schema) == [job.id]
        async with sessions.transaction() as own:
            # With the table's name in it, this look would find itself too: it is prepared like any other.
            made = await own.fetch(PLANNED_ANEW, "%finished_jobs%")
            assert (len(claimed), [row["custom_plans"] for row in made]) == (30, [5])
    finally:
        await sessions.close()


# What is set for whatever reads and writes while a signal is sent, and when its commit wakes the run.
MET = """
    create table holdfast.met as
    select ''::text as place, ''::text as plans, ''::text as scans, ''::text as bitmaps limit 0"""
MEET = """
    create function holdfast.meet() returns trigger language plpgsql as $$
    begin
        insert into holdfast.met
        values (tg_table_name, current_setting('plan_cache_mode'), current_setting('enable_seqscan'),
                current_setting('enable_bitmapscan'));
        return new;
    end $$"""


async def test_a_signal_from_anybodys_session_is_planned_like_ours(scene: Scene) -> None:
    """Planned anew for each signal it cost at least twice as much; the session keeps its own settings."""
    job = await scene.one()
    await scene.run(runs.suspend_runs([Suspended(fence(job), Suspend("a signal", signals=("go",)))]))
    await scene.db.fetch(MET)
    await scene.db.fetch(MEET)
    for table in ("insert on holdfast.signals", "update on holdfast.live_jobs"):
        await scene.db.fetch(
            f"create trigger meet before {table} for each row execute function holdfast.meet()"
        )
    theirs = await asyncpg.connect(scene.db.dsn)
    try:
        await theirs.execute(
            rendered("select holdfast.send_signal($1::bigint, 'go')", scene.db.schema), job.id
        )
        assert tuple(await theirs.fetchrow(SHOWN) or ()) == ("auto", "on")
    finally:
        await theirs.close()
    pinned = ("force_generic_plan", "off", "off")
    assert await scene.db.fetch("select * from holdfast.met") == [
        ("signals", *pinned),
        ("live_jobs", *pinned),
    ]
    assert (await scene.states())[job.id] == "available"


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize(("state", "term"), [("offline", None), ("online", 1)])
async def test_an_enqueue_does_not_walk_over_ended_workers(
    scene: Scene, analysed: bool, state: str, term: int | None
) -> None:
    """A fleet whose runners serve one job each leaves thousands of rows; only who lives can be asleep.

    And of runners no enqueue tells.
    """
    await scene.worker()
    filling = """
        insert into holdfast.workers (name, host, pid, version, queues, kinds, slots, state, ttl, started_at,
                                      renewed_at, expires_at, ended_at, term)
        select 'w' || n, 'h', n, '1', '{default}', '{greet}', 1, $1, '30 s', now(), now(), now(), now(), $2
        from generate_series(1, 3000) n"""
    await scene.db.fetch(filling, state, term)
    if analysed:
        await scene.db.fetch("analyze holdfast.workers")
    connection = await scene.session()
    async with connection.transaction():
        unlike = [NewJob(kind="greet", args="{}", priority=priority) for priority in (1, 2)]
        await scene.run(jobs.enqueue_jobs(unlike), connection)
        await scene.run(jobs.enqueue_jobs([NewJob(kind="greet", args="{}")] * 3), connection)
        await scene.run(jobs.enqueue_jobs([NewJob(kind="greet", args="{}")]), connection)
        await connection.execute(rendered("select holdfast.enqueue('greet')", scene.db.schema))
        read = await connection.fetchval(
            "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables "
            "where relid = to_regclass(format('%I.workers', $1::text))",
            scene.db.schema,
        )
    assert 3 <= read < 100


def test_a_planted_full_scan_is_found() -> None:
    """The judge of plans sees a sequential scan, a bitmap and an index read from end to end."""
    inner = {"Node Type": "Index Scan", "Relation Name": "jobs", "Index Name": "jobs_pkey"}
    bitmap = {"Node Type": "Bitmap Heap Scan", "Relation Name": "live_jobs"}
    plan = {"Node Type": "Nested Loop", "Plans": [inner, bitmap]}
    assert faults(plan) == ["all of jobs_pkey", "Bitmap Heap Scan of live_jobs"]
    assert faults(inner | {"Index Cond": "(id = 1)"}) == []
