"""`holdfast queues|workers|schedules|audit`: what operators see and do."""

import json
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.testing import ThrowawayDatabase

pytestmark = pytest.mark.usefixtures("here")


async def test_queues_are_listed_paused_and_limited(
    holdfast_command: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Each act prints the queue as it is then; the list shows switches, limits and counts."""
    assert (await holdfast_command("queues", "list")).out == "no queue is known yet\n"
    await client.enqueue(JobRequest("greet", "{}"), queue="mail")
    done = await holdfast_command("queues", "pause", "mail", "--reason", "deploy")
    assert (done.code, done.out) == (0, "queue mail is paused, without limit, 1 for each key\n")
    assert (await holdfast_command("queues", "limit", "mail", "3")).code == 0
    shown = json.loads((await holdfast_command("queues", "key-limit", "mail", "2", "--json")).out)
    assert (shown["name"], shown["paused"], shown["max_running"], shown["key_limit"]) == ("mail", True, 3, 2)
    (listed,) = json.loads((await holdfast_command("queues", "list", "--json")).out)
    assert listed == shown
    assert "mail   paused" in (await holdfast_command("queues", "list")).out
    done = await holdfast_command("queues", "limit", "mail", "none")
    assert done.out == "queue mail is paused, without limit, 2 for each key\n"
    assert "queue mail is open" in (await holdfast_command("queues", "resume", "mail")).out
    done = await holdfast_command("queues", "retention", "mail", "36h")
    assert done.out == "queue mail is open, without limit, 2 for each key, history kept for 1d 12h\n"
    assert "history" not in (await holdfast_command("queues", "retention", "mail", "none")).out
    assert await db.value("select count(*) from holdfast.audit_log where subject = 'queue mail'") == 7


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["queues", "pause", "mial"], 1, "see `holdfast queues list`, or make it by --create"),
        (["queues", "limit", "mail", "many"], 2, "limit is 'many': give a whole number, or none"),
        (["queues", "limit", "mail", "-1"], 2, "limit is '-1': give a whole number, or none"),
        (["queues", "key-limit", "mail", "-1"], 2, "key limit is -1"),
        (["queues", "key-limit", "mail", "0"], 2, "key limit is 0"),
        (["queues", "retention", "mail", "soon"], 2, "retention is 'soon': give seconds"),
        (["workers", "drain", "4711"], 1, "worker 4711 is unknown"),
        (["schedules", "run", "weekly"], 1, "schedule 'weekly' is unknown: see `holdfast schedules list`"),
        (["schedules", "pause", "weekly"], 1, "schedule 'weekly' is unknown"),
        (["schedules", "delete", "weekly"], 1, "schedule 'weekly' is unknown"),
    ],
)
async def test_what_does_not_exist_is_named(
    holdfast_command: Any, arguments: list[str], code: int, told: str
) -> None:
    """The sentence says where to look."""
    done = await holdfast_command(*arguments)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


async def test_a_worker_is_listed_and_drained(
    holdfast_command: Any, start_holdfast: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """A drained worker process ends by itself, and the list with --all remembers it."""
    assert (await holdfast_command("workers", "list")).out == "no worker is online\n"
    program = await start_holdfast("worker", "--app", "shop:app", "--name", "w1", "--slots", "3")
    worker_id = str(await eventually(lambda: db.value("select id from holdfast.workers")))
    listed = await holdfast_command("workers", "list")
    assert "w1" in listed.out
    assert "0 of 3" in listed.out
    assert "renewed" in listed.out
    (shown,) = json.loads((await holdfast_command("workers", "list", "--json")).out)
    assert (shown["name"], shown["state"], shown["slots"], shown["running"]) == ("w1", "online", 3, 0)
    done = await holdfast_command("workers", "drain", worker_id, "--actor", "alice")
    assert (done.code, done.out) == (0, f"worker {worker_id} is draining\n")
    assert await program.ended() == 0
    assert (await holdfast_command("workers", "list", "--json")).out == "[]\n"
    assert "offline" in (await holdfast_command("workers", "list", "--all")).out
    gone = await holdfast_command("workers", "drain", worker_id)
    assert (gone.code, gone.err) == (
        1,
        f"holdfast: worker {worker_id} is offline: it takes no jobs any more\n",
    )


async def test_schedules_are_listed_run_and_paused(holdfast_command: Any, db: ThrowawayDatabase) -> None:
    """A run prints the job that it made."""
    assert (await holdfast_command("schedules", "list")).out == "no schedule is stored\n"
    await db.fetch(
        "insert into holdfast.schedules (name, kind, queue, cron, timezone, next_tick_at) "
        "values ('nightly', 'greet', 'default', '0 3 * * *', 'Europe/Berlin', '2999-01-01T00:00Z')"
    )
    listed = await holdfast_command("schedules", "list")
    assert "0 3 * * * (Europe/Berlin)" in listed.out
    assert "2999-01-01 00:00:00.000 UTC" in listed.out
    assert (await holdfast_command("schedules", "run", "nightly")).out == "job 1\n"
    assert json.loads((await holdfast_command("schedules", "run", "nightly", "--json")).out) == {"id": 2}
    assert (await holdfast_command("schedules", "pause", "nightly")).out == "schedule nightly is paused\n"
    (shown,) = json.loads((await holdfast_command("schedules", "list", "--json")).out)
    assert (shown["name"], shown["paused"], shown["timezone"]) == ("nightly", True, "Europe/Berlin")
    assert "args" not in shown
    assert shown["options"] == {}
    assert (await holdfast_command("schedules", "resume", "nightly")).out == "schedule nightly is active\n"
    for verb, state in (("pause", "paused"), ("resume", "active"), ("delete", "deleted")):
        done = await holdfast_command("schedules", verb, "nightly", "--json")
        assert json.loads(done.out) == {"name": "nightly", "state": state}


@pytest.mark.parametrize(
    ("name", "told"),
    [("", "queue is '': give a string"), ("q" * 101, "it has 101 characters and may have 100")],
)
async def test_no_queue_is_made_that_no_job_may_name(
    holdfast_command: Any, db: ThrowawayDatabase, name: str, told: str
) -> None:
    """A queue that is not there yet gets a row by an operator's act; nobody could ever use this one."""
    before = await db.fetch("select name from holdfast.queues order by 1")
    done = await holdfast_command("queues", "pause", name, "--create")
    assert (done.code, told in done.err) == (2, True)
    assert await db.fetch("select name from holdfast.queues order by 1") == before


async def test_the_audit_log_is_listed_by_subject_and_actor(
    holdfast_command: Any, client: holdfast.Client
) -> None:
    """Who did what, to what and why, newest first, page by page."""
    assert (await holdfast_command("audit")).out == "nobody has acted yet\n"
    for _ in range(2):
        handle = await client.enqueue(JobRequest("greet", "{}"))
        await holdfast_command("jobs", "cancel", str(handle.id), "--actor", "alice", "--reason", "typo")
    await holdfast_command("queues", "pause", "default", "--create", "--actor", "bob")
    listed = await holdfast_command("audit", "--by", "alice")
    assert [line.split()[-4:] for line in listed.out.splitlines()[1:]] == [
        ["job.cancel", "job", str(handle.id), "typo"],
        ["job.cancel", "job", str(handle.id - 1), "typo"],
    ]
    (act,) = json.loads((await holdfast_command("audit", "--subject", "queue default", "--json")).out)
    assert (act["actor"], act["action"], act["detail"]["after"]["paused"]) == ("bob", "queue.pause", True)
    page = await holdfast_command("audit", "-n", "1")
    assert page.out.splitlines()[-1] == f"more: --before {act['id']}"
    assert (await holdfast_command("audit", "--by", "nobody")).out == "no act fits\n"
