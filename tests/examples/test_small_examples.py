"""Every small example is run as its reader would run it, and prints what it says."""

import ast
import asyncio
import importlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from holdfast.cli.wiring import WorkerProcess
from holdfast.store import migrate
from holdfast.store.database import Database, DatabaseConfig
from holdfast.worker.config import WorkerConfig

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
FILES = sorted(FOLDER.glob("*.py"))
PROGRAMS = [path.stem for path in FILES if path.stem not in ("__init__", "tested")]
# Programs that start their own workers.
ALONE = ("engine",)
MOST_LINES = 40
# What cannot be shown on one screen.
LONGER = {"approval": 80, "engine": 150}


def promised(name: str) -> list[str]:
    """The lines that an example's docstring says it prints."""
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""
    _, _, lines = docstring.partition("It prints:\n")
    return [line.strip() for line in lines.splitlines()]


@pytest.fixture
async def url(dsn: str) -> AsyncIterator[str]:
    """A database of its own with schema holdfast, as a reader has it."""
    name = f"example_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(dsn)
    await admin.execute(f"create database {name}")
    try:
        own = re.sub(r"(?<=[^/]/)[^/?]+(?=\?|$)", quote(name), dsn, count=1)
        database = Database(DatabaseConfig(dsn=own))
        await database.open()
        await migrate.migrate(database)
        await database.close()
        yield own
    finally:
        await admin.execute(f"drop database {name} with (force)")
        await admin.close()


async def run(*command: str, url: str) -> list[str]:
    """What a command prints, run from the top of the repository; it must end with 0."""
    environment = os.environ | {
        "HOLDFAST_DATABASE_URL": url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(60):
        printed, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return printed.decode().splitlines()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ALONE])
async def test_an_example_prints_what_it_says(name: str, url: str) -> None:
    """The program and a worker of its app come to the lines in the docstring."""
    app = importlib.import_module(f"examples.{name}").app
    worker = WorkerProcess(app, WorkerConfig(database=DatabaseConfig(dsn=url), queues=app.queues()))
    await worker.start()
    try:
        assert await run(sys.executable, "-m", f"examples.{name}", url=url) == promised(name)
    finally:
        await worker.stop(0.0)


@pytest.mark.parametrize("name", ALONE)
async def test_an_example_with_workers_of_its_own_prints_what_it_says(name: str, url: str) -> None:
    """The program alone comes to the lines in the docstring; one of its workers is killed on the way."""
    assert await run(sys.executable, "-m", f"examples.{name}", url=url) == promised(name)


async def test_the_quickstart_runs_by_its_two_commands(url: str) -> None:
    """`holdfast up` and the program beside it work as the README says."""
    up = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "holdfast.cli.main", "up", "--app", "examples.quickstart:app"),
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_HTTP_PORT": "0"},
        stdout=subprocess.DEVNULL,
    )
    try:
        assert await run(sys.executable, "-m", "examples.quickstart", url=url) == ["Hello, Ada!"]
    finally:
        up.terminate()
        assert await up.wait() == 0


async def test_the_example_of_a_tested_application_passes(url: str) -> None:
    """The suite in tested.py runs under plain pytest."""
    printed = await run(
        *(sys.executable, "-m", "pytest", "-q", "examples/tested.py", "-p", "no:cacheprovider"),
        f"--holdfast-database-url={url}",
        url=url,
    )
    assert any(line.startswith("3 passed") for line in printed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_small_and_says_what_it_shows(path: Path) -> None:
    """One screen, or what is listed, with a docstring; a program also says what it prints."""
    source = path.read_text()
    assert len(source.splitlines()) <= LONGER.get(path.stem, MOST_LINES)
    assert ast.get_docstring(ast.parse(source))
    assert path.stem not in PROGRAMS or promised(path.stem)
