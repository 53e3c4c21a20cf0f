"""Worker processes that a scenario starts, stops, freezes and kills."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Probe, ThrowawayDatabase

ROOT = Path(__file__).parents[2]


class WorkerProgram:
    """A real worker process; its events arrive at *probe*."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.probe = process, Probe()
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            fields = json.loads(line)
            self.probe(fields.pop("event"), fields)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def ended(self, within: float = 30.0) -> int:
        """Wait for the end of the process; answers its exit code."""
        async with asyncio.timeout(within):
            code = await self.process.wait()
            await self._reader
            return code

    async def worker_id(self) -> int:
        """The id of the worker row, once it is registered."""
        fields = await self.probe.wait_for("worker.registered")
        return int(fields["worker_id"])

    async def away(self) -> None:
        """Kill what is left of it."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        # Lets asyncio close the pipe before its loop does.
        await asyncio.sleep(0)


StartProgram = Callable[..., Any]


@pytest.fixture
async def start(db: ThrowawayDatabase) -> AsyncIterator[StartProgram]:
    """Starts `tests.scenarios.program` on the test's schema: ``await start(ttl=1.0, slots=2)``."""
    await db.fetch(
        "create table holdfast.effects (id bigint generated always as identity, job_id bigint, "
        "attempt integer, pid integer, what text, at timestamptz default clock_timestamp())"
    )
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> WorkerProgram:
            settings = {"dsn": db.dsn, "schema": db.schema, "ttl": 1.0} | settings
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.scenarios.program",
                json.dumps(settings),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
            )
            program = WorkerProgram(process)
            stack.push_async_callback(program.away)
            return program

        yield start


class Gate:
    """Holds back `program.gate` handlers until it is opened."""

    def __init__(self, connection: Any, number: int) -> None:
        self._connection, self.number = connection, number

    async def open(self) -> None:
        """Let them through."""
        await self._connection.execute("select pg_advisory_unlock($1)", self.number)

    async def is_waited_for(self) -> bool:
        """Whether a handler has come as far as the gate."""
        return bool(
            await self._connection.fetchval(
                "select exists (select from pg_locks where locktype = 'advisory' and not granted "
                "and (classid::bigint << 32) | objid::bigint = $1)",
                self.number,
            )
        )


@pytest.fixture
async def gate(db: ThrowawayDatabase) -> AsyncIterator[Gate]:
    """A closed gate; `gate.number` is what `program.gate` waits on."""
    connection = await db.database.connect()
    number = int(db.schema[5:], 16) >> 1
    await connection.execute("select pg_advisory_lock($1)", number)
    yield Gate(connection, number)
    await connection.close()
