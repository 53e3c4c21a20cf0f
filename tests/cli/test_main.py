"""The command line as a whole: help, exit codes, errors in one sentence."""

import asyncio
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import HOLDFAST


def test_the_package_is_the_program_too() -> None:
    """Where scripts are not on the path, as in a container."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"holdfast {__version__}\n"


async def test_help_lists_every_command(holdfast_command: Any) -> None:
    """Whoever types --help learns what there is."""
    done = await holdfast_command("--help")
    assert done.code == 0
    for name in ("up", "migrate", "worker", "doctor", "settings"):
        assert f"\n  {name} " in done.out


async def test_the_version_is_that_of_the_package(holdfast_command: Any) -> None:
    """The version needs no database and no settings."""
    done = await holdfast_command("--version", HOLDFAST_NONSENSE="1")
    assert (done.code, done.out) == (0, f"holdfast {__version__}\n")


def test_nothing_heavy_is_imported_before_a_command_needs_it() -> None:
    """The command line answers at once."""
    heavy = ("rich", "structlog", "prometheus_client", "uvloop", "holdfast.worker.worker")
    code = f"import sys, holdfast.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["settings"], {"HOLDFAST_SLOT": "3"}, "HOLDFAST_SLOT in the environment is no setting"),
        (["settings"], {"HOLDFAST_SLOTS": "x"}, "slots (from HOLDFAST_SLOTS) is 'x'"),
        (["worker", "--slots", "0"], {}, "slots (from --slots) is '0'"),
        (["migrate"], {}, "database_url is not set"),
        (["settings", "--config", "nowhere.toml"], {}, "nowhere.toml cannot be read"),
        (
            ["worker", "--app", "shop:app", "--database-url", "mysql://x"],
            {},
            "(from --database-url) is not usable",
        ),
        (["worker"], {"HOLDFAST_DATABASE_URL": "postgresql://x"}, "app is not set"),
        (["queues", "list"], {"HOLDFAST_DATABASE_URL": "postgresql://u@h:port/x"}, "its port is no number"),
        (["migrate", "--schema", "information_schema"], {}, "schema (from --schema) is 'information_schema'"),
    ],
)
async def test_wrong_use_is_one_sentence_and_exit_code_2(
    holdfast_command: Any, arguments: list[str], variables: dict[str, str], told: str
) -> None:
    """A mistake of the caller is named, without a traceback."""
    done = await holdfast_command(*arguments, **variables)
    assert done.code == 2
    assert done.err.startswith("holdfast: ")
    assert told in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


async def test_an_unknown_command_is_wrong_use(holdfast_command: Any) -> None:
    """A misspelt command is answered by the right one."""
    done = await holdfast_command("wroker")
    assert done.code == 2
    assert "worker" in done.err


async def test_a_database_that_is_away_is_a_failure(holdfast_command: Any) -> None:
    """Nobody did anything wrong, so the code is 1, and the sentence says what is the matter."""
    done = await holdfast_command("migrate", "--database-url", "postgresql://nobody:hunter2@127.0.0.1:1/x")
    assert done.code == 1
    assert done.err.startswith("holdfast: PostgreSQL cannot be reached at postgresql://")
    assert done.err.count("\n") == 1
    assert "hunter2" not in done.err


async def test_global_options_may_stand_behind_the_command(holdfast_command: Any) -> None:
    """Nobody has to remember whose option it is."""
    before = await holdfast_command("--schema", "staging", "settings", "--json")
    behind = await holdfast_command("settings", "--json", "--schema=staging")
    assert before.out == behind.out
    assert '"staging"' in before.out


async def test_settings_are_shown_with_their_source_and_without_passwords(holdfast_command: Any) -> None:
    """An operator sees what is in force, and a screenshot gives nothing away."""
    done = await holdfast_command(
        "settings", HOLDFAST_DATABASE_URL="postgresql://u:hunter2@host/x", HOLDFAST_SLOTS="7"
    )
    assert done.code == 0
    lines = {words[0]: words for line in done.out.splitlines() if (words := line.split())}
    assert lines["slots"][1:3] == ["7", "HOLDFAST_SLOTS"]
    assert [lines[name][1] for name in ("ttl", "retention_completed")] == ["30s", "14d"]
    assert lines["database_url"][1:3] == ["postgresql://u@host/x", "HOLDFAST_DATABASE_URL"]


@pytest.mark.parametrize(
    "address", ["postgresql://u:hunter/2@host/x", "postgresql://host/x?sslpassword=hunter2"]
)
async def test_settings_show_no_password_wherever_it_stands(holdfast_command: Any, address: str) -> None:
    """Nor one that nobody escaped, or that unlocks a key."""
    done = await holdfast_command("settings", "--json", HOLDFAST_DATABASE_URL=address)
    assert done.code == 0
    assert "hunter" not in done.out


def test_a_reader_that_goes_away_is_no_error(folder: Path, environment: dict[str, str]) -> None:
    """``holdfast settings | head -1`` is quiet."""
    process = subprocess.Popen(
        [*HOLDFAST, "settings", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert err == ""


async def test_an_interrupted_command_ends_with_130(
    start_holdfast: Any, here: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """Ctrl-C is no failure of the command and leaves no traceback."""
    async with db.database.transaction() as connection:
        await connection.execute(
            "select pg_advisory_xact_lock(hashtext('holdfast migrate'), hashtext($1))", db.schema
        )
        program = await start_holdfast("migrate", **here)
        waits = (
            "select count(*) from pg_stat_activity "
            "where application_name = 'holdfast command' and wait_event = 'advisory'"
        )
        await eventually(lambda: db.value(waits))
        program.send(signal.SIGINT)
        assert await program.ended() == 130
    assert program.lines == []


async def test_migrate_says_what_it_did_and_what_was_done_before(
    holdfast_command: Any, here: dict[str, str], db: ThrowawayDatabase
) -> None:
    """A second run finds nothing to do; --check tells by its exit code."""
    here["HOLDFAST_SCHEMA"] = fresh = f"{db.schema}_fresh"
    try:
        behind = await holdfast_command("migrate", "--check", **here)
        assert (behind.code, f"run `holdfast migrate --schema {fresh}`" in behind.err) == (1, True)
        first = await holdfast_command("migrate", **here)
        assert first.out.startswith("applied 0001 queue\n")
        assert f"schema {fresh} is now at " in first.out
        second = await holdfast_command("migrate", **here)
        assert second.out.startswith(f"schema {fresh} was already at ")
        assert (await holdfast_command("migrate", "--check", **here)).code == 0
    finally:
        await db.fetch(f"drop schema if exists {fresh} cascade")


async def test_two_migrations_at_once_do_the_work_once(
    holdfast_command: Any, here: dict[str, str], db: ThrowawayDatabase
) -> None:
    """Two deploys at the same moment both succeed, and each step is applied by one of them."""
    here["HOLDFAST_SCHEMA"] = fresh = f"{db.schema}_twice"
    try:
        both = await asyncio.gather(*(holdfast_command("migrate", **here) for _ in range(2)))
        assert [done.code for done in both] == [0, 0]
        assert sum(done.out.count("applied 0001 queue") for done in both) == 1
    finally:
        await db.fetch(f"drop schema if exists {fresh} cascade")


def _ended(environment: dict[str, str], shell: str, **variables: str) -> tuple[int, str, str]:
    """How a line of the shell ended in which HOLDFAST stands for the command, and what it wrote."""
    line = shell.replace("HOLDFAST", shlex.join(HOLDFAST))
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment | variables,
        capture_output=True,
        encoding=variables.get("PYTHONIOENCODING", "utf-8"),
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("shell", "problem"),
    [
        ("HOLDFAST settings > /dev/full", "No space left on device"),
        ("HOLDFAST --help > /dev/full", "No space left on device"),
        ("HOLDFAST settings --json > /dev/full", "No space left on device"),
        ("HOLDFAST settings >&-", "Bad file descriptor"),
        ("HOLDFAST --version >&-", "Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_a_failure(
    environment: dict[str, str], shell: str, problem: str
) -> None:
    """Whoever keeps the answer in a file learns that it is not there."""
    code, _, err = _ended(environment, shell)
    assert (code, err) == (1, f"holdfast: the output cannot be written: {problem}\n")


@pytest.mark.parametrize(
    ("shell", "code", "out", "err"),
    [
        ("HOLDFAST enqueue - <&-", 0, "0 jobs enqueued in", ""),
        ("HOLDFAST bench <&-", 2, "", "nobody can be asked here: say --yes\n"),
        ("HOLDFAST command --script - <&-", 0, "job ", ""),
        ("HOLDFAST runs signal 1 approved - <&-", 2, "", "the payload is not JSON"),
        ("HOLDFAST jobs show 1 2>&-", 1, "", ""),
        ("HOLDFAST settings 2>&- | head -c 7", 0, "setting", ""),
        ("HOLDFAST serve --host 203.0.113.1 2>&-", 2, "", ""),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(
    here: dict[str, str], shell: str, code: int, out: str, err: str
) -> None:
    """Whoever starts programs may have nothing to give them, and nobody who reads."""
    done = _ended(here, shell)
    assert done[0] == code
    assert done[1].startswith(out)
    assert err in done[2]
    assert "Traceback" not in done[2]


def test_who_reads_no_further_is_not_told(environment: dict[str, str]) -> None:
    """As is usual in a pipe; the code says it to those who ask."""
    assert _ended(environment, "HOLDFAST settings | true; exit ${PIPESTATUS[0]}") == (1, "", "")


@pytest.mark.parametrize(
    "shell",
    [
        "HOLDFAST tokens create ci --role admin > /dev/full",
        "HOLDFAST tokens create ci --role admin --json >&-",
        "HOLDFAST deliveries add ci https://example.com/x > /dev/full",
    ],
)
async def test_a_secret_that_nobody_has_seen_is_taken_back(
    holdfast_command: Any, here: dict[str, str], shell: str
) -> None:
    """It is shown this once; what is left is the line of it in the audit log."""
    code, _, err = await asyncio.to_thread(_ended, here, shell)
    assert code == 1
    assert "the output cannot be written" in err
    verb = shell.split()[1]
    left = await holdfast_command(verb, "endpoints" if verb == "deliveries" else "list", "--json")
    assert json.loads(left.out) == []
    audit = await holdfast_command("audit", "--json")
    assert "could not be shown" in audit.out


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", r"f\u00fcr \ud83d\udc1a"), ("latin-1", r"für \ud83d\udc1a"), ("utf-8", "für 🐚")],
)
async def test_letters_that_a_terminal_does_not_have_are_escaped(
    holdfast_command: Any, here: dict[str, str], encoding: str, shown: str
) -> None:
    """So that a list can be read, and JSON is JSON, however poor the terminal."""
    made = await holdfast_command("tokens", "create", "für 🐚", "--role", "viewer")
    assert made.code == 0
    listed = await asyncio.to_thread(_ended, here, "HOLDFAST tokens list", PYTHONIOENCODING=encoding)
    assert shown in listed[1]
    listed = await asyncio.to_thread(_ended, here, "HOLDFAST tokens list --json", PYTHONIOENCODING=encoding)
    assert json.loads(listed[1])[0]["name"] == "für 🐚"
