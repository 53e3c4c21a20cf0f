"""`holdfast doctor` on the healthy, the sick and the absent."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.model.health import Level
from holdfast.store import doctor
from holdfast.store.sqlfile import rendered
from holdfast.testing import Probe, ThrowawayDatabase


@pytest.fixture
def examined(holdfast_command: Any, here: dict[str, str]) -> Callable[..., Any]:
    """Runs the doctor; answers its exit code and, by check, level, text and remedy of what it found."""

    async def examine(**variables: str) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
        done = await holdfast_command("doctor", "--json", **(here | variables))
        found: dict[str, list[tuple[str, str, str]]] = {}
        for one in json.loads(done.out):
            found.setdefault(one["check"], []).append((one["level"], one["what"], one["remedy"] or ""))
        return done.code, found

    return examine


async def test_a_system_at_work_is_healthy(
    examined: Any, work: Any, client: holdfast.Client, probe: Probe
) -> None:
    """With a leader and a worker that knows its kinds nothing is bad, and the exit code is 0."""
    app = holdfast.App()

    @app.job
    async def greet(name: str) -> str:
        return name

    await work(app)
    handle = await client.enqueue(greet.job("you"))
    await client.wait(handle.id, timeout=10)
    await probe.wait_for("leader.changed")
    code, found = await examined()
    assert code == 0
    levels = {check: max(Level(one[0]) is Level.BAD for one in all_of) for check, all_of in found.items()}
    assert not any(levels.values()), found
    assert found["leader"][0][1].startswith("somebody leads")
    assert found["queues"][0][0] == "ok"
    assert {
        "settings",
        "version",
        "clock",
        "locks",
        "horizon",
        "schema",
        "bloat",
        "partitions",
        "workers",
    } <= set(found)


async def test_nobody_at_work_is_bad(examined: Any, client: holdfast.Client) -> None:
    """Jobs without a worker and a schema without a leader are named, each with its remedy."""
    await client.enqueue(JobRequest("greet", "{}"), queue="mail")
    await client.enqueue(JobRequest("greet", "{}"), queue="keyed", concurrency_key="k")
    code, found = await examined()
    assert code == 1
    assert [(level, what.partition(" (")[0]) for level, what, _ in found["queues"]] == [
        ("bad", "queue keyed has jobs to claim"),
        ("bad", "queue mail has jobs to claim"),
    ]
    assert "holdfast worker --queues mail" in found["queues"][1][2]
    assert found["leader"][0][0] == "bad"


async def test_stuck_queues_are_told_apart(
    examined: Any, work: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Paused, limited to nothing, and of a kind that nobody knows are three different findings."""
    app = holdfast.App()

    @app.job
    async def greet() -> None:
        """Do nothing."""

    await work(app, queues=("paused", "limited", "foreign"))
    await db.fetch("update holdfast.queues set paused = true where name = 'paused'")
    await db.fetch("update holdfast.queues set max_running = 0 where name = 'limited'")
    for queue, kind in (("paused", "greet"), ("limited", "greet"), ("foreign", "nobody_knows")):
        await client.enqueue(JobRequest(kind, "{}"), queue=queue)
    code, found = await examined()
    assert code == 1
    told = {what.split()[1]: (level, what, remedy) for level, what, remedy in found["queues"]}
    assert told["paused"][0] == "warn"
    assert told["paused"][2] == "holdfast queues resume paused"
    assert told["limited"][0] == "warn"
    assert told["foreign"][0] == "bad"
    assert told["foreign"][1].endswith("none of its 1 online workers knows: nobody_knows")


async def test_a_lost_worker_and_a_filled_default_partition_are_seen(
    examined: Any, db: ThrowawayDatabase
) -> None:
    """Traces of trouble that has passed are warnings: the exit code is about the present."""
    await db.fetch(
        "insert into holdfast.workers (name, host, pid, version, queues, kinds, slots, state, ttl, "
        "started_at, renewed_at, expires_at, ended_at) "
        "values ('w', 'h', 1, '0', '{}', '{}', 1, 'lost', '30s', now(), now(), now(), now())"
    )
    await db.fetch(
        "insert into holdfast.finished_jobs (job_id, queue, kind, outcome, attempt, failures, finished_at) "
        "values (1, 'q', 'k', 'completed', 1, 0, '2001-01-01')"
    )
    _, found = await examined()
    assert found["workers"][0][0] == "warn"
    assert "1 worker was lost within the last hour" in found["workers"][0][1]
    assert found["partitions"][0][:2] == ("warn", "finished_completed_rest holds rows")


@pytest.mark.parametrize("paused_by", [None, "held for a person: its runner is gone", "paused by ada"])
async def test_runs_that_wait_for_a_person_are_seen(
    examined: Any, db: ThrowawayDatabase, paused_by: str | None
) -> None:
    """A deploy that does not fit must not put runs to sleep in silence; who pauses one knows of it."""
    await db.fetch(
        "insert into holdfast.suspensions (run_id, paused, pause_reason, reason, since) "
        "values (7, true, $1, 'NonDeterministicRun: mend it', now()), (8, false, null, 'a signal', now())",
        paused_by,
    )
    _, found = await examined()
    level, what, remedy = found["runs"][0]
    if paused_by != "paused by ada":
        assert (level, what) == ("warn", "1 job waits for a resume: 7")
        assert "holdfast runs resume" in remedy
    else:
        assert (level, what, remedy) == ("ok", "no job waits for a person", "")


async def test_a_schema_that_was_never_migrated_is_one_finding(examined: Any) -> None:
    """The server is judged all the same; what needs the schema is left out."""
    code, found = await examined(HOLDFAST_SCHEMA="never_migrated")
    assert code == 1
    assert found["schema"] == [
        (
            "bad",
            "schema 'never_migrated' does not exist in this database: "
            "run `holdfast migrate --schema never_migrated`",
            "holdfast migrate --schema never_migrated",
        )
    ]
    assert found["version"][0][0] == "ok"
    assert "queues" not in found


async def test_a_schema_of_another_edition_is_one_finding(examined: Any, db: ThrowawayDatabase) -> None:
    """The doctor names the migration that differs and does not break on it."""
    await db.fetch("update holdfast.schema_versions set checksum = 'another' where version = 1")
    code, found = await examined()
    assert code == 1
    ((level, told, remedy),) = found["schema"]
    assert (level, remedy) == ("bad", "use the release that made it, or another schema")
    assert "was made by another edition of migration 1:" in told


@pytest.mark.parametrize(
    ("variables", "check", "told"),
    [
        (
            {"HOLDFAST_DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/x"},
            "database",
            "PostgreSQL cannot be reached",
        ),
        ({"HOLDFAST_SLOTS": "none"}, "settings", "slots (from HOLDFAST_SLOTS) is 'none'"),
    ],
)
async def test_what_stands_in_the_way_is_a_finding(
    examined: Any, variables: dict[str, str], check: str, told: str
) -> None:
    """Neither a database that is away nor a wrong setting ends the doctor with an error of its own."""
    code, found = await examined(**variables)
    assert code == 1
    assert found[check][0][0] == "bad"
    assert told in found[check][0][1]
    assert "hunter2" not in str(found)


async def test_people_get_a_table_with_remedies(holdfast_command: Any, here: dict[str, str]) -> None:
    """Without --json each finding is a line, and a remedy follows its own."""
    done = await holdfast_command("doctor", **here)
    assert done.code == 1
    lines = [line.strip() for line in done.out.splitlines()]
    bad = next(n for n, line in enumerate(lines) if line.startswith("bad"))
    assert "nobody leads" in lines[bad]
    assert lines[bad + 1] == "→ start a worker or `up`"


async def test_who_waits_for_a_lock_and_who_blocks_is_seen(db: ThrowawayDatabase, eventually: Any) -> None:
    """The facts name both sessions, and the open transaction as a holder of the vacuum horizon."""
    locked = rendered("select 1 from holdfast.leader for update", db.schema)
    async with db.database.transaction() as holder:
        await holder.fetch(locked)
        await holder.execute("create temporary table mine ()")
        blocker = holder.get_server_pid()
        waiting = await db.database.connect()
        try:
            waiter = waiting.get_server_pid()
            await waiting.execute("set application_name = 'the one who waits'")
            task = asyncio.create_task(waiting.fetch(locked))
            waits = await eventually(lambda: db.database.run(doctor.lock_waits(0.0)))
            ours = [(one.application, one.blockers) for one in waits if one.pid == waiter]
            assert ours == [("the one who waits", [blocker])]
            holders = await db.database.run(doctor.horizon_holders())
            assert str(blocker) in {one.name for one in holders if one.source == "transaction"}
            waiting.terminate()
            await asyncio.gather(task, return_exceptions=True)
        finally:
            waiting.terminate()


@pytest.mark.pg16
async def test_the_facts_can_be_read_from_an_older_server(db: ThrowawayDatabase) -> None:
    """PostgreSQL 16 has every column that the doctor asks for."""
    server = await db.database.run(doctor.server_facts())
    assert server.major == 16
    assert server.connections >= 1
    await db.database.run(doctor.horizon_holders())
    await db.database.run(doctor.lock_waits(0.0))
    assert await db.database.run(doctor.dead_rows()) is not None
