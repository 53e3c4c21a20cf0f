"""Starts processes of Holdfast within milliseconds, by forking one that has imported everything."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fork:
    """A process; *ended* tells its exit code."""

    pid: int
    ended: asyncio.Future[int]

    async def kill(self) -> None:
        """End it, where it has not ended yet."""
        if not self.ended.done():
            # It may have ended, and this has yet to hear of it.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        await asyncio.wait([self.ended])


class Forker:
    """Speaks with `tests.scenarios.forks`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._answers = process.stdin, process.stdout
        self._ordering = asyncio.Lock()
        self.pid = process.pid
        self._forked: asyncio.Queue[Fork] = asyncio.Queue()
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def start(self, **settings: Any) -> Fork:
        """Start a worker process, see `fulfilment.work`, or a command, see `forks.command`."""
        async with self._ordering:
            self._orders.write(json.dumps(settings).encode() + b"\n")
            return await self._forked.get()

    async def hear(self) -> None:
        """Take in what the program tells, until it ends."""
        async for line in self._answers:
            facts = json.loads(line)
            if "forked" in facts:
                end = self._ends[facts["forked"]] = asyncio.get_running_loop().create_future()
                self._forked.put_nowait(Fork(facts["forked"], end))
            else:
                self._ends.pop(facts["ended"]).set_result(facts["code"])

    def leave(self) -> None:
        """Have the program end."""
        self._orders.close()


@asynccontextmanager
async def forking() -> AsyncIterator[Forker]:
    """Run the program that forks."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.scenarios.forks", cwd=ROOT, stdin=pipe, stdout=pipe
    )
    forker = Forker(process)
    hearing = asyncio.create_task(forker.hear())
    try:
        yield forker
    finally:
        forker.leave()
        await process.wait()
        await hearing
