"""The command line as a user has it: real processes in a folder of their own."""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Probe, ThrowawayDatabase

HOLDFAST = (sys.executable, "-m", "holdfast.cli.main")

SHOP = '''
"""The application that the tests of the command line run."""

import asyncio
import gc
import threading
from pathlib import Path

import holdfast

app = holdfast.App()
not_an_app = object()


@app.job
async def greet(name: str) -> str:
    return f"hello {name}"


@app.job
async def sweep() -> list[int]:
    return [gc.get_threshold()[0], gc.get_freeze_count()]


@app.workflow(queue="orders")
async def order(run: holdfast.Run, what: str) -> str:
    return what


def begun() -> None:
    Path("begun").touch()


@app.job
async def nap(seconds: float) -> None:
    begun()
    await asyncio.sleep(seconds)


@app.job
async def stubborn() -> None:
    begun()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@app.job
def hang() -> None:
    begun()
    threading.Event().wait()
'''


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Program:
    """A command that goes on; the events of its log arrive at *probe*."""

    process: asyncio.subprocess.Process
    probe: Probe = field(default_factory=Probe)
    lines: list[str] = field(default_factory=list)
    reader: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Pass every line of the log on."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())
            with suppress(json.JSONDecodeError):
                fields = json.loads(line)
                self.probe(fields.pop("event", "line"), fields)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self, within: float = 30.0) -> int:
        """Wait for the end; answers the exit code."""
        assert self.reader is not None
        async with asyncio.timeout(within):
            code = await self.process.wait()
            await self.reader
        return code

    async def away(self) -> None:
        """Kill what is left of it."""
        with suppress(ProcessLookupError):
            self.process.kill()
        # The log ends when the last process that writes to it has ended.
        await self.ended()


def free_port() -> int:
    """The first of two neighbouring ports that nobody uses.

    Not one that the system might give to whoever asks for any, before the test's own program listens there or
    while it is restarted: those begin above on Linux.
    """
    while True:
        port = 2 * (10_000 + secrets.randbelow(6_000))
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which commands run; it has an application in shop.py."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables that commands see: nothing of ours but what a test adds."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    # Tests run side by side: each service takes a port that is free.
    return inherited | {"HOLDFAST_HTTP_PORT": "0"}


@pytest.fixture
def here(environment: dict[str, str], db: ThrowawayDatabase) -> dict[str, str]:
    """The same with the test's own schema as the environment."""
    environment |= {"HOLDFAST_DATABASE_URL": db.dsn, "HOLDFAST_SCHEMA": db.schema}
    return environment


Run = Callable[..., Awaitable[Done]]
Start = Callable[..., Awaitable[Program]]


@pytest.fixture
def holdfast_command(folder: Path, environment: dict[str, str]) -> Run:
    """Runs ``holdfast …`` to its end."""

    async def run(*arguments: str, stdin: bytes = b"", **variables: str) -> Done:
        process = await asyncio.create_subprocess_exec(
            *HOLDFAST,
            *arguments,
            cwd=folder,
            env=environment | variables,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())

    return run


@pytest.fixture
async def start_holdfast(folder: Path, environment: dict[str, str]) -> AsyncIterator[Start]:
    """Starts ``holdfast …`` and leaves it running; killed at the end where it has not ended."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: str, **variables: Any) -> Program:
            process = await asyncio.create_subprocess_exec(
                *HOLDFAST,
                *arguments,
                cwd=folder,
                env=environment | variables,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            program = Program(process)
            program.reader = asyncio.create_task(program.read())
            stack.push_async_callback(program.away)
            return program

        yield start
