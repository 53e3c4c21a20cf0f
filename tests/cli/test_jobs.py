"""`holdfast jobs`: what operators see, do and are told."""

import asyncio
import json
import os
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import HOLDFAST

pytestmark = pytest.mark.usefixtures("here")


def greet(name: str = "Ada") -> JobRequest:
    """A request for the greeting of the shop."""
    return JobRequest("greet", f'{{"name": "{name}"}}')


async def test_a_job_is_listed_shown_and_its_arguments_are_kept_for_show(
    holdfast_command: Any, client: holdfast.Client
) -> None:
    """The list is a table without arguments; show has everything, and says why the job waits."""
    handle = await client.enqueue(greet("Secret"), tags=["eu"])
    listed = await holdfast_command("jobs", "list", "--tag", "eu")
    assert listed.code == 0
    assert listed.out.split()[:9] == [
        "id",
        "state",
        "kind",
        "queue",
        "attempt",
        "enqueued",
        "since",
        "worker",
        "reason",
    ]
    assert f"{handle.id}" in listed.out
    assert "available" in listed.out
    assert "Secret" not in listed.out
    shown = await holdfast_command("jobs", "show", str(handle.id))
    assert shown.code == 0
    assert 'args         {"name":"Secret"}' in shown.out
    assert "waits        no online worker works on queue 'default': start one" in shown.out


async def test_a_terminal_obeys_nobody_whose_words_are_shown(
    holdfast_command: Any, client: holdfast.Client
) -> None:
    """Names and reasons are whatever a producer gave: they are shown with escapes, each in its place."""
    kind, queue = "esc\x1b]0;x\x07\x1b[31m\nstate        completed", "\n\x9b31m"
    job = await client.enqueue(JobRequest(kind, "{}"), queue=queue)
    run = await client.enqueue(JobRequest("order", "{}", is_run=True), queue=queue)
    await client.cancel(run.id, reason="\x1b[2Jgone\r\nfor good")

    async def said(*words: str) -> str:
        done = await holdfast_command(*words)
        assert not {letter for letter in done.out if not letter.isprintable()} - {"\n"}, words
        return str(done.out)

    assert "queue \n\\u009b31m is paused" in await said("queues", "pause", queue)
    assert "\n\\n\\u009b31m " in await said("queues", "list")
    assert "esc\\u001b]0;x\\u0007\\u001b[31m\\nstate        completed" in await said("jobs", "list")
    shown = await said("jobs", "show", str(job.id))
    assert f"job          {job.id} esc\\u001b]0;x" in shown
    assert "\nstate        available" in shown
    assert "\nstate        completed" not in shown
    assert "\\u001b[2Jgone" in await said("runs", "show", str(run.id))
    assert {one["kind"] for one in json.loads(await said("jobs", "list", "--json"))} == {kind, "order"}


async def test_json_has_the_names_of_the_record_and_times_in_utc(
    holdfast_command: Any, client: holdfast.Client
) -> None:
    """Programs read the field names of the model and ISO 8601; the list leaves out what may be secret."""
    handle = await client.enqueue(greet(), priority=2)
    (listed,) = json.loads((await holdfast_command("jobs", "list", "--json")).out)
    assert (listed["id"], listed["state"], listed["priority"]) == (handle.id, "available", 2)
    assert datetime.fromisoformat(listed["created_at"]).utcoffset() == timedelta(0)
    assert "args" not in listed
    shown = json.loads((await holdfast_command("jobs", "show", str(handle.id), "--json")).out)
    assert shown["job"]["args"] == {"name": "Ada"}
    assert (shown["job"]["attempts"], shown["audit"]) == ([], [])
    assert "no online worker" in shown["why"]


async def test_pages_follow_each_other(holdfast_command: Any, client: holdfast.Client) -> None:
    """A full page says how to see the next one."""
    ids = [handle.id for handle in await client.enqueue_many([greet()] * 3)]
    first = await holdfast_command("jobs", "list", "-n", "2")
    assert f"more: --before {ids[1]}" in first.out
    second = json.loads((await holdfast_command("jobs", "list", "--json", "--before", str(ids[1]))).out)
    assert [job["id"] for job in second] == [ids[0]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "--state", "lost"], "'lost' is not one of"),
        (
            ["list", "--since", "yesterday"],
            "--since is 'yesterday': give seconds, a number with ms, s, m, h or d",
        ),
        (["list", "-n", "0"], "Invalid value for '--limit' / '-n'"),
        (["show", "x"], "Invalid value for 'ID'"),
        (["show", "99999999999999999999"], "Invalid value for 'ID': 99999999999999999999 is no id"),
        (["cancel", "1", "99999999999999999999"], "99999999999999999999 is no id"),
        (["list", "--worker", "99999999999999999999"], "99999999999999999999 is no id"),
        (["list", "--before", "0"], "0 is no id: give a whole number from 1 to 9223372036854775807"),
        (["cancel"], "holdfast: name job ids, or a filter such as --kind, or --all"),
        (["cancel", "1", "--kind", "greet"], "holdfast: job ids and a filter are given: name job ids, or"),
        (["retry", "--state", "completed"], "only these can be retried: scheduled, failed, cancelled"),
        (["discard", "--state", "running"], "only these can be discarded: scheduled, available, waiting"),
        (["cancel", "--yes", "--text", ""], "holdfast: text is '': give some text, or leave it out"),
        (["wait", "1", "--timeout", "soon"], "--timeout is 'soon'"),
    ],
)
async def test_wrong_use_exits_with_2_and_says_what_to_do(
    holdfast_command: Any, arguments: list[str], told: str
) -> None:
    """A mistake is told on stderr, without a traceback, and nothing is printed."""
    done = await holdfast_command("jobs", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in " ".join(done.err.split())
    assert "Traceback" not in done.err


async def test_one_job_is_cancelled_retried_and_discarded_by_name(
    holdfast_command: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Each act says what became of the job; who did it and why is in the audit log and in show."""
    handle = await client.enqueue(greet())
    job = str(handle.id)
    done = await holdfast_command("jobs", "cancel", job, "--reason", "typo", "--actor", "alice")
    assert (done.code, done.out) == (0, f"job {job} is cancelled\n")
    again = await holdfast_command("jobs", "cancel", job)
    assert (again.code, again.out) == (1, "")
    assert again.err == f"holdfast: job {job} is cancelled: it cannot be cancelled; it has ended already\n"
    assert (await holdfast_command("jobs", "retry", job)).out == f"job {job} is retried\n"
    assert (await holdfast_command("jobs", "discard", job)).out == f"job {job} is discarded\n"
    acts = await db.fetch("select actor, action, reason from holdfast.audit_log order by id")
    assert acts[0] == ("alice", "job.cancel", "typo")
    assert [act[1] for act in acts] == ["job.cancel", "job.retry", "job.discard"]
    assert "@" in acts[1][0]
    shown = await holdfast_command("jobs", "show", job)
    assert "alice" in shown.out
    assert "typo" in shown.out
    assert "job 4711 does not exist" in (await holdfast_command("jobs", "show", "4711")).err


async def test_a_refusal_does_not_stop_the_others(holdfast_command: Any, client: holdfast.Client) -> None:
    """Of several jobs named, those that can be are cancelled; the exit code tells that not all were."""
    ids = [str(handle.id) for handle in await client.enqueue_many([greet()] * 2)]
    done = await holdfast_command("jobs", "cancel", ids[0], "4711", ids[1])
    assert done.code == 1
    assert done.out == f"job {ids[0]} is cancelled\njob {ids[1]} is cancelled\n"
    assert "job 4711 does not exist" in done.err


async def test_many_jobs_are_counted_first_and_changed_only_when_that_is_wanted(
    holdfast_command: Any, client: holdfast.Client
) -> None:
    """A dry run changes nothing; without a terminal --yes has to be said."""
    ids = [handle.id for handle in await client.enqueue_many([greet()] * 3)]
    other = await client.enqueue(JobRequest("other", "{}"))
    dry = await holdfast_command("jobs", "cancel", "--kind", "greet", "--dry-run")
    assert dry.code == 0
    assert "3 jobs would be cancelled, the newest:" in dry.out
    told = json.loads((await holdfast_command("jobs", "cancel", "--all", "--dry-run", "--json")).out)
    assert (told["count"], told["sample"][0]["id"]) == (4, other.id)
    named = await holdfast_command("jobs", "cancel", str(ids[0]), str(ids[1]), "9999", "--dry-run", "--json")
    assert (named.code, json.loads(named.out)) == (1, {"count": 2})
    unasked = await holdfast_command("jobs", "cancel", "--kind", "greet")
    assert unasked.code == 2
    assert "holdfast: 3 jobs fit and nobody can be asked here: say --yes" in unasked.err
    done = await holdfast_command("jobs", "cancel", "--kind", "greet", "--yes")
    assert (done.code, done.out) == (0, "3 jobs cancelled\n")
    one = await holdfast_command("jobs", "cancel", "--kind", "other", "--dry-run")
    assert one.out.startswith("1 job would be cancelled, the newest:\n")
    left = json.loads((await holdfast_command("jobs", "list", "--state", "available", "--json")).out)
    assert [job["id"] for job in left] == [other.id]
    assert (await holdfast_command("jobs", "retry", "--state", "cancelled", "-y")).out == "3 jobs retried\n"
    assert len(ids) == 3


async def test_wait_prints_the_result_or_fails(
    holdfast_command: Any, client: holdfast.Client, start_holdfast: Any
) -> None:
    """The exit code is 0 for a result, and 1 for a job that is cancelled, late or unknown."""
    await start_holdfast("worker", "--app", "shop:app")
    handle = await client.enqueue(greet())
    done = await holdfast_command("jobs", "wait", str(handle.id), "--timeout", "20s")
    assert (done.code, json.loads(done.out)) == (0, "hello Ada")
    told = json.loads((await holdfast_command("jobs", "wait", str(handle.id), "--json")).out)
    assert told == {"id": handle.id, "state": "completed", "result": "hello Ada", "reason": None}
    later = await client.enqueue(greet(), delay=3600)
    late = await holdfast_command("jobs", "wait", str(later.id), "--timeout", "50ms")
    assert (late.code, late.out) == (1, "")
    assert "has not ended within 0.05 s, it is still scheduled: it is due at " in late.err
    await holdfast_command("jobs", "cancel", str(later.id), "--reason", "no need")
    gone = await holdfast_command("jobs", "wait", str(later.id))
    assert (gone.code, gone.err) == (1, f"holdfast: job {later.id} was cancelled: no need\n")
    told = json.loads((await holdfast_command("jobs", "wait", str(later.id), "--json")).out)
    assert (told["state"], told["result"], told["reason"]) == ("cancelled", None, "no need")
    # What takes less than a second is told in ms: 0s would say nothing.
    assert re.search(r"#1 +completed .* \d+ms ", (await holdfast_command("jobs", "show", str(handle.id))).out)
    assert (await holdfast_command("jobs", "wait", "4711")).code == 1


async def test_logs_are_printed_followed_and_cut(
    holdfast_command: Any, client: holdfast.Client, work: Any, folder: Path, environment: dict[str, str]
) -> None:
    """A follower sees lines as they are written and ends with the job; a tail shows the last ones."""
    app, gate = holdfast.App(), asyncio.Event()

    @app.job
    async def talk(job: holdfast.Job) -> None:
        job.log.info("first")
        await gate.wait()
        job.log.warning("second")

    await work(app)
    handle = await client.enqueue(talk.job())
    command = (*HOLDFAST, "jobs", "logs", str(handle.id), "-f", "--json")
    follower = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert follower.stdout is not None
    assert json.loads(await follower.stdout.readline())["line"] == "first"
    gate.set()
    last = json.loads(await follower.stdout.readline())
    assert (last["line"], last["level"], last["attempt"], last["byte_offset"]) == ("second", "warning", 1, 6)
    assert await follower.wait() == 0
    tail = await holdfast_command("jobs", "logs", str(handle.id), "--tail", "1")
    assert tail.out.endswith("#1  warning  second\n")
    assert len(tail.out.splitlines()) == 1
    assert (await holdfast_command("jobs", "logs", "4711")).code == 1
    absent = await holdfast_command("jobs", "logs", str(handle.id), "--attempt", "2")
    assert (absent.code, absent.out) == (2, "")
    assert absent.err == f"holdfast: --attempt is 2: job {handle.id} has attempt 1 alone\n"


async def test_a_reader_that_leaves_early_is_no_fault(
    client: holdfast.Client, folder: Path, environment: dict[str, str]
) -> None:
    """With its output cut off by `head`, the command is quiet."""
    await client.enqueue_many([greet("x" * 1000)] * 600, tags=["t" * 90] * 40)
    shell = f"{sys.executable} -m holdfast.cli.main jobs list --json -n 600 | head -1"
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        shell,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (out, err) == (b"[\n", b"")


@pytest.mark.parametrize(("answer", "code", "state"), [(b"n\n", 1, "available"), (b"y\n", 0, "cancelled")])
async def test_on_a_terminal_the_operator_is_asked(
    answer: bytes,
    code: int,
    state: str,
    client: holdfast.Client,
    db: ThrowawayDatabase,
    folder: Path,
    environment: dict[str, str],
) -> None:
    """The question names how many jobs are meant; only a yes changes anything."""
    await client.enqueue_many([greet()] * 3)
    master, slave = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*HOLDFAST, "jobs", "cancel", "--kind", "greet"),
        cwd=folder,
        env=environment,
        stdin=slave,
        stderr=slave,
        stdout=asyncio.subprocess.PIPE,
    )
    os.write(master, answer)
    out, _ = await process.communicate()
    told = os.read(master, 10_000).decode()
    os.close(slave)
    os.close(master)
    assert "3 jobs will be cancelled. Go on? [y/N]" in told
    assert (process.returncode, out) == (code, b"3 jobs cancelled\n" if code == 0 else b"")
    assert await db.fetch("select distinct state from holdfast.job_overview") == [(state,)]
