"""`holdfast enqueue`: one job, or many as lines."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.cli.pouring import Pouring
from holdfast.store.database import Database
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import HOLDFAST
from tests.runners.agent.strait import Wire

pytestmark = pytest.mark.usefixtures("here")


def lines(*jobs: Any) -> bytes:
    """Jobs as JSON lines."""
    return b"".join(json.dumps(job).encode() + b"\n" for job in jobs)


def greetings(count: int) -> list[dict[str, Any]]:
    """That many jobs of kind greet."""
    return [{"kind": "greet", "args": {"name": f"n{number}"}} for number in range(count)]


async def names(db: ThrowawayDatabase) -> list[str]:
    """The names to greet, in order of ids."""
    return [row[0] for row in await db.fetch("select args ->> 'name' from holdfast.jobs order by id")]


async def test_a_job_may_ask_for_a_runner(holdfast_command: Any, db: ThrowawayDatabase) -> None:
    """Its placement is what the flags say, and no worker sees it."""
    done = await holdfast_command(
        *("enqueue", "greet", '{"name": "Ada"}', "--label", "gpu", "--label", "linux", "--runner", "build-7"),
        *("--pin-for", "10m", "--on-loss", "hold", "--stall-limit", "30m"),
    )
    assert (done.code, done.out) == (0, "job 1\n")
    (row,) = await db.fetch(
        "select labels, runner, pinned_until > holdfast.now() + interval '9 minutes', on_loss, "
        "extract(epoch from stall_limit)::integer from holdfast.placements"
    )
    assert row == (["gpu", "linux"], "build-7", True, "hold", 1800)
    assert await db.value("select route_id is not null from holdfast.live_jobs")
    wrong = await holdfast_command("enqueue", "greet", "--on-loss", "pray")
    assert (wrong.code, "on_loss" in wrong.err) == (2, True)


async def test_one_job_goes_in_with_every_option(holdfast_command: Any, db: ThrowawayDatabase) -> None:
    """What is given as a flag is what the job has."""
    done = await holdfast_command(
        *("enqueue", "greet", '{"name": "Ada"}', "--queue", "mail", "--priority", "1", "--max-attempts", "7"),
        *("--timeout", "2m", "--run-at", "2999-01-01T00:00", "--unique-key", "u", "--concurrency-key", "c"),
        *("--tag", "a", "--tag", "b", "--meta", '{"m": 1}', "--retry", '{"kind": "constant", "delay": 30}'),
    )
    assert (done.code, done.out) == (0, "job 1\n")
    (row,) = await db.fetch(
        "select kind, args->>'name', queue, priority, max_attempts, timeout, unique_key, concurrency_key, "
        "tags, meta->>'m', retry->>'kind' from holdfast.jobs"
    )
    assert row == ("greet", "Ada", "mail", 1, 7, 120.0, "u", "c", ["a", "b"], "1", "constant")
    assert str(await db.value("select run_at from holdfast.live_jobs")) == "2999-01-01 00:00:00+00:00"
    again = await holdfast_command("enqueue", "greet", "--unique-key", "u", "--json")
    assert json.loads(again.out) == {"id": 1, "status": "kept"}
    refused = await holdfast_command("enqueue", "greet", "--unique-key", "u", "--unique-policy", "reject")
    assert (refused.code, refused.err) == (1, "holdfast: job 1 already holds unique key 'u'\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "holdfast: name a kind, or - for JSON lines from stdin"),
        (["greet", "[1]"], "JSON is '[1]': give a JSON object such as"),
        (["greet", "{"], "JSON is '{': give a JSON object such as"),
        (["greet", "{}", "--priority", "10"], "priority is 10: give a whole number from 0 to 9"),
        (["greet", "{}", "--delay", "soon"], "--delay is 'soon'"),
        (["greet", "{}", "--run-at", "2h"], "--run-at is '2h': give a time such as"),
        (["greet", '{"a": "\\u0000"}'], "NUL"),
        (
            ["greet", "{}", "--app", "shop:app"],
            "arguments of 'greet' are wrong: missing a required argument: 'name'",
        ),
        (["greet", "{}", "--app", "shop:none"], "no application at 'shop:none'"),
        (["-", "--atomic", "--skip-bad"], "it cannot be had together with --skip-bad"),
        (["greet", '{"name": "Ada"}', "--stdin"], "KIND is 'greet': leave it out where --stdin is given"),
        (["greet", "--atomic"], "--atomic is True: it is for JSON lines from stdin"),
        (["greet", "--skip-bad"], "--skip-bad is True: it is for JSON lines from stdin"),
    ],
)
async def test_a_wrong_job_is_refused_and_nothing_is_enqueued(
    holdfast_command: Any, db: ThrowawayDatabase, arguments: list[str], told: str
) -> None:
    """The sentence names what is wrong, and the exit code is that of wrong use."""
    done = await holdfast_command("enqueue", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "Traceback" not in done.err
    assert await db.value("select count(*) from holdfast.jobs") == 0


async def test_the_application_says_in_which_queue_a_run_belongs(
    holdfast_command: Any, db: ThrowawayDatabase
) -> None:
    """Without it nobody knows, and the job goes to the default queue; an option overrules both."""
    asked = ("enqueue", "order", '{"what": "tea"}')
    for rest in ([], ["--app", "shop:app"], ["--app", "shop:app", "--queue", "mail"]):
        assert (await holdfast_command(*asked, *rest)).code == 0
    queues = await db.fetch("select queue from holdfast.jobs order by id")
    assert queues == [("default",), ("orders",), ("mail",)]


async def test_a_kind_that_the_application_does_not_know_is_refused(holdfast_command: Any) -> None:
    """With --app a misspelt kind is found before the database is."""
    done = await holdfast_command("enqueue", "great", "{}", "--app", "shop:app")
    assert done.code == 1
    assert "no handler is registered for kind 'great'; registered: greet" in done.err


async def test_lines_go_in_in_order_with_their_own_options(
    holdfast_command: Any, db: ThrowawayDatabase
) -> None:
    """More lines than a batch holds; what a line says wins over the flag; the account is printed."""
    many = greetings(5203)
    many[0] |= {"priority": 0, "tags": ["x"], "delay": 3600}
    stdin = lines(*many).replace(b"\n", b"\n\n", 1)
    done = await holdfast_command("enqueue", "-", "--priority", "7", stdin=stdin)
    assert done.code == 0
    assert done.out.startswith("5,203 jobs enqueued in ")
    assert await names(db) == [job["args"]["name"] for job in many]
    assert await db.value("select count(*) from holdfast.jobs where priority = 7") == 5202
    assert await db.fetch("select priority, tags from holdfast.jobs order by id limit 1") == [(0, ["x"])]
    assert await db.value("select count(*) from holdfast.live_jobs where state = 'scheduled'") == 1


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"nonsense", "line 601 is no job: "),
        (b'{"args": {}}', "missing required field `kind`"),
        (b'{"kind": "greet", "prio": 1}', "unknown field `prio`"),
        (b'{"kind": "greet", "priority": 11}', "priority is 11"),
        (b'{"kind": "greet", "args": [1]}', "Expected `object`, got `array`"),
        (b'{"kind": "greet", "args": {"a": "\xff"}}', "line 601 is no job: "),
        (b'{"kind": "greet", "run_at": "2026-01-01T00:00:00"}', "give a datetime with a time zone"),
        (b'{"kind": "greet", "unique_key": "u", "unique_policy": "reject"}', "already holds unique key 'u'"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_after_it_is_enqueued(
    holdfast_command: Any, db: ThrowawayDatabase, bad: bytes, told: str
) -> None:
    """What stands before it is in, so that the input can be mended and go on from there."""
    await holdfast_command("enqueue", "other", '{"name": "first"}', "--unique-key", "u")
    stdin = lines(*greetings(600)) + bad + b"\n" + lines(*greetings(50))
    done = await holdfast_command("enqueue", "--stdin", stdin=stdin)
    assert done.code == 1
    assert "line 601 is no job: " in done.err
    assert told in done.err
    assert done.err.endswith("; what stands before it is enqueued, nothing after it\n")
    assert done.out.startswith("600 jobs enqueued in ")
    assert await names(db) == ["first", *(f"n{number}" for number in range(600))]


async def test_bad_lines_can_be_skipped(holdfast_command: Any, db: ThrowawayDatabase) -> None:
    """Every one is named, the others are enqueued, and the exit code tells that not all was well."""
    stdin = lines(*greetings(2)) + b"nonsense\n" + lines(*greetings(2)) + b'{"kind": ""}'
    done = await holdfast_command("enqueue", "-", "--skip-bad", "--json", stdin=stdin)
    assert done.code == 1
    told = json.loads(done.out)
    assert (told["new"], [bad["line"] for bad in told["bad"]]) == (4, [3, 6])
    assert "line 3 is no job" in done.err
    assert "line 6 is no job: kind is ''" in done.err
    assert len(await names(db)) == 4
    done = await holdfast_command("enqueue", "-", "--skip-bad", stdin=b"nonsense\n")
    assert "0 jobs enqueued, 1 bad line skipped in " in done.out


async def test_all_lines_or_none(holdfast_command: Any, db: ThrowawayDatabase) -> None:
    """Atomic undoes what stands before a bad line, in former batches too."""
    many = lines(*greetings(5100))
    done = await holdfast_command("enqueue", "-", "--atomic", stdin=many + b"nonsense\n")
    assert done.code == 1
    assert "line 5101 is no job" in done.err
    assert "nothing is enqueued" in done.err
    assert done.out.startswith("0 jobs enqueued in ")
    assert await names(db) == []
    one = await holdfast_command("enqueue", "-", "--atomic", stdin=lines(*greetings(1)))
    assert one.out.startswith("1 job enqueued in ")
    await db.fetch("delete from holdfast.jobs")
    assert (await holdfast_command("enqueue", "-", "--atomic", stdin=many)).code == 0
    assert len(await names(db)) == 5100


async def test_lines_are_checked_against_the_application(
    holdfast_command: Any, db: ThrowawayDatabase
) -> None:
    """With --app a wrong argument or kind makes a bad line."""
    stdin = lines({"kind": "greet", "args": {"name": "Ada"}}, {"kind": "greet", "args": {"nam": "Ada"}})
    done = await holdfast_command("enqueue", "-", "--app", "shop:app", stdin=stdin)
    assert "line 2 is no job: arguments of 'greet' are wrong" in done.err
    assert await names(db) == ["Ada"]
    done = await holdfast_command("enqueue", "-", "--app", "shop:app", stdin=lines({"kind": "great"}))
    assert "line 1 is no job: no handler is registered for kind 'great'" in done.err


async def test_a_slow_stream_goes_in_as_it_comes(
    folder: Path, environment: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """A line is not kept back until a batch is full."""
    process = await asyncio.create_subprocess_exec(
        *HOLDFAST,
        "enqueue",
        "-",
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(lines(*greetings(1)))
    await eventually(lambda: db.value("select count(*) from holdfast.jobs"))
    process.stdin.close()
    assert await process.wait() == 0


@pytest.mark.parametrize(("options", "patience"), [([], "10s"), (["--atomic"], "0")])
def test_a_stream_that_goes_in_as_one_may_pause(
    here: dict[str, str], monkeypatch: pytest.MonkeyPatch, options: list[str], patience: str
) -> None:
    """Its transaction waits for whoever writes the lines; PostgreSQL would end it after ten seconds."""
    found = []

    async def pour(_: Pouring, database: Database) -> None:
        async with database.connection() as connection:
            found.append(await connection.fetchval("show idle_in_transaction_session_timeout"))

    monkeypatch.setattr(Pouring, "pour_locally", pour)
    done = CliRunner().invoke(app, ["enqueue", "-", *options], env=here)
    assert (done.exit_code, found) == (0, [patience])


async def test_a_stream_whose_transaction_is_cut_off_ends_in_a_sentence(
    folder: Path, environment: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """The server may restart between two lines."""
    process = await asyncio.create_subprocess_exec(
        *HOLDFAST,
        "enqueue",
        "-",
        "--atomic",
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(lines(*greetings(1)))
    cut_off = (
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
        "where application_name = 'holdfast command' and state = 'idle in transaction' "
        "and query like 'RELEASE%'"
    )
    await eventually(lambda: db.value(cut_off))
    process.stdin.write(lines(*greetings(1)))
    out, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode().startswith("holdfast: the connection to PostgreSQL failed: ")
    assert err.count(b"\n") == 1
    assert out.startswith(b"0 jobs enqueued in ")


# The end of a transaction with jobs waits for a lock, where it writes nothing any more but that it is over.
SLOW_ENDS = (
    """create function holdfast.wait_a_little() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(1); return null; end $$""",
    """create constraint trigger slow after insert on holdfast.jobs deferrable initially deferred
    for each row execute function holdfast.wait_a_little()""",
)
WAITING_END = (
    "select count(*) from pg_stat_activity where application_name = 'holdfast command' "
    "and wait_event = 'advisory' and query like 'COMMIT%'"
)
LOOK = (
    "look with `holdfast jobs list` before you send them again; a line with a unique_key makes no second job"
)


@pytest.fixture
async def pour(
    folder: Path, environment: dict[str, str], wire: tuple[Wire, str]
) -> AsyncIterator[Callable[..., Any]]:
    """Starts ``holdfast enqueue -`` on three lines, by a network of its own to the server."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> asyncio.subprocess.Process:
            process = await asyncio.create_subprocess_exec(
                *(*HOLDFAST, "enqueue", "-", *options),
                cwd=folder,
                env=environment | {"HOLDFAST_DATABASE_URL": wire[1]},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stdin is not None
            process.stdin.write(lines(*greetings(3)))
            process.stdin.close()
            stack.push_async_callback(process.wait)
            return process

        yield start


@pytest.mark.parametrize("as_json", [False, True])
async def test_all_lines_whose_commit_is_not_answered_may_be_enqueued(
    pour: Any, wire: tuple[Wire, str], db: ThrowawayDatabase, eventually: Any, as_json: bool
) -> None:
    """They are, and whoever read of no job would send them again."""
    for statement in SLOW_ENDS:
        await db.fetch(statement)
    async with db.database.connection() as session:
        await session.execute("select pg_advisory_lock(1)")
        process = await pour("--atomic", *(["--json"] if as_json else []))
        await eventually(lambda: db.value(WAITING_END))
        wire[0].cut()
        await session.execute("select pg_advisory_unlock(1)")
    await eventually(lambda: db.value("select count(*) = 3 from holdfast.jobs"))
    wire[0].interrupt()
    out, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode().startswith(f"holdfast: all 3 lines may be enqueued, or none: {LOOK}")
    counts = dict.fromkeys(("new", "kept", "replaced"))
    assert (json.loads(out) if as_json else out) == (counts | {"bad": []} if as_json else b"")


@pytest.mark.parametrize(
    ("options", "told", "counted"),
    [
        (["--atomic"], "all 3 lines may be enqueued, or none", None),
        ([], "lines 1 to 3 may be enqueued too", 0),
    ],
)
async def test_ctrl_c_while_lines_are_committed_says_which_may_be_enqueued(
    pour: Any, db: ThrowawayDatabase, eventually: Any, options: list[str], told: str, counted: int | None
) -> None:
    """The server may go on with what it was told to commit."""
    for statement in SLOW_ENDS:
        await db.fetch(statement)
    async with db.database.connection() as session:
        await session.execute("select pg_advisory_lock(1)")
        process = await pour("--json", *options)
        await eventually(lambda: db.value(WAITING_END))
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        await session.execute("select pg_advisory_unlock(1)")
    assert process.returncode == 130
    assert err.decode().startswith(f"holdfast: {told}: {LOOK}")
    assert err.count(b"\n") == 1
    assert json.loads(out)["new"] == counted


async def test_ctrl_c_before_the_commit_of_all_lines_leaves_none(
    folder: Path, environment: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """Nothing is enqueued, and that is what it says."""
    process = await asyncio.create_subprocess_exec(
        *(*HOLDFAST, "enqueue", "-", "--atomic"),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(lines(*greetings(1)))
    poured = (
        "select count(*) from pg_stat_activity where application_name = 'holdfast command' "
        "and state = 'idle in transaction' and query like 'RELEASE%'"
    )
    await eventually(lambda: db.value(poured))
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
    assert out.startswith(b"0 jobs enqueued in ")
    assert await names(db) == []


async def test_a_line_without_an_end_is_a_bad_line_like_others(
    holdfast_command: Any, db: ThrowawayDatabase
) -> None:
    """It is skipped where bad lines are, however long, and the next has its number; else it is the end."""
    long = b'{"kind": "greet", "args": {"name": "%s"}}' % (b"x" * 15_000_000)
    stdin = b"\n".join(
        [
            b'{"kind": "greet", "args": {"name": "x"}}',
            long,
            b'{"kind": "greet", "args": {"name": "x"}}',
            b"{",
            long,
        ]
    )
    done = await holdfast_command("enqueue", "-", "--skip-bad", "--json", stdin=stdin)
    assert done.code == 1
    bad = json.loads(done.out)["bad"]
    assert [one["line"] for one in bad] == [2, 4, 5]
    assert bad[0]["problem"] == bad[2]["problem"] == "it has more than 4,194,304 bytes"
    assert await db.value("select count(*) from holdfast.jobs") == 2
    done = await holdfast_command("enqueue", "-", stdin=stdin)
    assert done.code == 1
    assert "line 2 is no job: it has more than 4,194,304 bytes" in done.err
    assert await db.value("select count(*) from holdfast.jobs") == 3
