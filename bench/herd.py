"""Two thousand runners before one server process: claims a second, how long they wait, what idling costs.

``python -m bench.herd --runners 2000 --rate 1000 --seconds 20`` starts a PostgreSQL and ``holdfast serve`` of
its own and plays the runners in this process, over loopback HTTP, each on a connection of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psutil
import uvloop

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.migration import migrate
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.runtime.embedded import EmbeddedServer
from holdfast.store.database import Database, DatabaseConfig

COMMAND = JobRequest("command", '{"argv": ["true"]}')
CHUNK = 500
LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class Line(asyncio.Protocol):
    """One connection of one runner: plain HTTP/1.1 by hand, so that playing runners costs little."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._transport: asyncio.Transport | None = None
        self._read = b""
        self._answer: asyncio.Future[tuple[int, Any]] | None = None
        self._busy = asyncio.Lock()
        self.turn = asyncio.Lock()
        self.token = ""

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Send a request; answers status and JSON."""
        async with self._busy:
            loop = asyncio.get_running_loop()
            if self._transport is None:
                self._transport, _ = await loop.create_connection(lambda: self, self._host, self._port)
            text = msgspec.json.encode(body)
            self._read, self._answer = b"", loop.create_future()
            self._transport.write(
                b"POST %b HTTP/1.1\r\nHost: herd\r\nAuthorization: Bearer %b\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (path.encode(), self.token.encode(), len(text), text)
            )
            return await self._answer

    def data_received(self, data: bytes) -> None:
        """Wait for the whole of an answer."""
        self._read += data
        head, end, content = self._read.partition(b"\r\n\r\n")
        told = LENGTH.search(head)
        if end and len(content) >= (0 if told is None else int(told[1])) and self._answer is not None:
            said = msgspec.json.decode(content) if content else None
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), said))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let nobody wait for what does not come."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    def close(self) -> None:
        """Hang up; the next request makes a new connection."""
        transport, self._transport, self._busy = self._transport, None, asyncio.Lock()
        if transport is not None:
            transport.close()


@dataclass
class Tally:
    """What was seen."""

    waits: list[float] = field(default_factory=list)
    finished: int = 0
    empty: int = 0
    refused: dict[int, int] = field(default_factory=dict)

    def refuse(self, status: int) -> None:
        """Count an answer that was none."""
        self.refused[status] = self.refused.get(status, 0) + 1


async def register(place: tuple[str, int], count: int, registrar: str, rate: float) -> list[Line]:
    """Register so many runners, not faster than the service lets one token."""
    door = Line(*place)
    door.token = registrar
    lines = []
    for number in range(count):
        line = Line(*place)
        status, told = await door.post(
            "/runner/v1/register",
            {
                "name": f"herd-{number}",
                "protocols": [1],
                "slots": 2,
                "labels": [f"rack-{number % 10}", "linux"],
            },
        )
        if status != 201:
            raise SystemExit(f"register: {status} {told}")
        line.token = told["token"]
        lines.append(line)
        await asyncio.sleep(1 / rate)
    door.close()
    return lines


async def claim_and_finish(line: Line, due: float, tally: Tally) -> None:
    """One claim that was due at that moment, and the end of what it brought; a runner does one at a time."""
    async with line.turn:
        await _claim_and_finish(line, due, tally)


async def _claim_and_finish(line: Line, due: float, tally: Tally) -> None:
    status, told = await line.post("/runner/v1/claim", {"count": 1, "wait": 5})
    tally.waits.append(time.perf_counter() - due)
    if status != 200:
        tally.refuse(status)
        return
    for offer in told["offers"]:
        place = f"/runner/v1/assignments/{offer['job']}/{offer['attempt']}"
        status, _ = await line.post(f"{place}/finish", {"outcome": "completed", "result": {"exit_code": 0}})
        tally.finished += status == 200
        if status != 200:
            tally.refuse(status)
    tally.empty += not told["offers"]


async def pace(lines: list[Line], rate: float, seconds: float) -> Tally:
    """Let runners claim at *rate* by the clock, whoever is free; a late answer delays nobody else."""
    tally = Tally()
    order = lines[:]
    random.shuffle(order)
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = begun + number / rate
            if (rest := due - time.perf_counter()) > 0:
                await asyncio.sleep(rest)
            group.create_task(claim_and_finish(order[number % len(order)], due, tally))
    print(f"{len(tally.waits) / (time.perf_counter() - begun):.0f} claims/s asked and answered")
    return tally


async def idle(lines: list[Line], seconds: float, served: psutil.Process, dsn: str) -> None:
    """Let all runners wait in a sync, and see what that costs."""
    syncs = [asyncio.create_task(keep_waiting(line)) for line in lines]
    await asyncio.sleep(10)
    before, begun = await snapshot(served, dsn), time.perf_counter()
    await asyncio.sleep(seconds)
    after, passed = await snapshot(served, dsn), time.perf_counter() - begun
    cpu = (after[0] - before[0]) / passed
    print(
        f"idle, {len(lines)} runners: {cpu:.1%} of a core in the server, "
        f"{cpu / len(lines) * 1e6:.1f} us/s for each; "
        f"{(after[1] - before[1]) / passed:.1f} transactions/s; {served.memory_info().rss >> 20} MB"
    )
    for sync in syncs:
        sync.cancel()
    await asyncio.gather(*syncs, return_exceptions=True)


async def keep_waiting(line: Line) -> None:
    """Sync, for ever."""
    while True:
        await line.post("/runner/v1/sync", {"free": 2, "wait": 30})


async def snapshot(served: psutil.Process, dsn: str) -> tuple[float, int]:
    """Processor seconds of the server, and transactions of the database."""
    connection = await asyncpg.connect(dsn)
    count = await connection.fetchval(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    )
    await connection.close()
    return sum(served.cpu_times()[:2]), count


@asynccontextmanager
async def serving(dsn: str, folder: Path) -> AsyncIterator[tuple[tuple[str, int], psutil.Process]]:
    """A server process of its own, and where it listens."""
    port = 18700 + os.getpid() % 1000
    environment = os.environ | {"HOLDFAST_DATABASE_URL": dsn, "HOLDFAST_LOG_FORMAT": "json"}
    with (folder / "serve.log").open("wb") as log:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--port", str(port)]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        yield ("127.0.0.1", port), psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def main(arguments: argparse.Namespace) -> None:
    """Run the whole of it."""
    with (
        tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as name,
        EmbeddedServer(Path(name) / "data") as server,
    ):
        await migrate(server.dsn)
        async with holdfast.Client(server.dsn) as client:
            database = Database(DatabaseConfig(dsn=server.dsn))
            await database.open()
            registrar = await Operator(database, "herd").tokens.create("herd", Role.REGISTRAR)
            async with serving(server.dsn, Path(name)) as (place, served):
                lines = await register(place, arguments.runners, registrar.text, 400)
                if arguments.idle:
                    await idle(lines, arguments.idle, served, server.dsn)
                    for line in lines:
                        line.close()
                jobs = int(arguments.rate * arguments.seconds * 1.2)
                for first in range(0, jobs, CHUNK):
                    await client.enqueue_many([COMMAND] * min(CHUNK, jobs - first), labels=["linux"])
                before = spent(served, Path(name) / "data")
                tally = await pace(lines, arguments.rate, arguments.seconds)
                after = spent(served, Path(name) / "data")
                report(tally, {part: after[part] - before[part] for part in after}, served)
            await database.close()


def spent(served: psutil.Process, data: Path) -> dict[str, float]:
    """Processor seconds so far of the server, of PostgreSQL in *data*, and of the played runners."""
    postmaster = psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))
    return {
        "server": sum(served.cpu_times()[:2]),
        # A backend that has ended is in the times of its parent.
        "PostgreSQL": sum(sum(one.cpu_times()[:4]) for one in (postmaster, *postmaster.children())),
        "runners played": sum(psutil.Process().cpu_times()[:2]),
    }


def report(tally: Tally, cpu: dict[str, float], served: psutil.Process) -> None:
    """Print what was seen."""
    waits = sorted(tally.waits)
    p50, p99 = waits[len(waits) // 2] * 1000, waits[int(len(waits) * 0.99)] * 1000
    print(f"claim to offer: p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {waits[-1] * 1000:.0f} ms")
    print(f"{tally.finished} finished, {tally.empty} empty answers, refused {tally.refused}")
    for name, seconds in cpu.items():
        print(f"{name}: {seconds / max(1, tally.finished) * 1e6:.0f} us of processor a job")
    print(f"server: {served.memory_info().rss >> 20} MB; load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runners", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--idle", type=float, default=30, help="0 leaves the idle part out")
    uvloop.run(main(parser.parse_args()))
