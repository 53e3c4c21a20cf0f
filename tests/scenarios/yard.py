"""A service and its runners as processes, with a ferry between them, and the history that they leave."""

import asyncio
import gzip
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import free_port
from tests.scenarios.ferry import Ferry
from tests.scenarios.forker import Fork, Forker

PATIENCE = 60.0
GLANCE = 0.05

# Appends its beginning and its end to a diary, and holds a lock for as long as any process of it lives.
DIARIED = """\
note() {{ echo "$1 $RUNNER_JOB $RUNNER_ATTEMPT $(date +%s.%N)" >>"$DIARY"; }}
exec 9>>"$DIARY.$RUNNER_JOB.lock"
flock -n 9 || note beside-another
note begun
{script}
note ended
"""
CHUNKS = """
    select attempt, packed, data from holdfast.log_chunks
    where job_id = $1 and stream = $2 order by attempt, byte_offset
"""
ENDS = "select job_id, outcome, attempt from holdfast.finished_jobs order by job_id"
LOST = "select job_id, attempt from holdfast.attempts order by 1, 2"


class Yard:
    """One service on a database of its own, on *host* in network *namespace*, and runners that reach it."""

    def __init__(
        self,
        db: ThrowawayDatabase,
        client: holdfast.Client,
        forker: Forker,
        folder: Path,
        stack: AsyncExitStack,
    ) -> None:
        self.db, self.client, self._forker, self.folder, self._stack = db, client, forker, folder, stack
        self.port, self.lost_after = free_port(), 20.0
        self.diary = folder / "diary"
        self.host, self.namespace = "127.0.0.1", ""
        self.server: Fork | None = None
        self._token = ""

    @property
    def address(self) -> str:
        """Where the service is."""
        return f"http://{self.host}:{self.port}"

    async def open(self) -> None:
        """Make a token for runners and start the service."""
        await self.prepare()
        await self.start_server()

    async def prepare(self) -> None:
        """Make a token for runners."""
        self.folder.mkdir()
        self.diary.touch()
        made = await Operator(self.db.database, "test").tokens.create("machines", Role.REGISTRAR)
        self._token = made.text
        self._stack.push_async_callback(self.end_server)

    async def start_server(self) -> Fork:
        """Start the service, and wait until it listens."""
        variables = {
            "HOLDFAST_DATABASE_URL": self.db.dsn,
            "HOLDFAST_SCHEMA": self.db.schema,
            "HOLDFAST_RUNNER_LOST_AFTER": f"{self.lost_after:g}s",
            "HOLDFAST_DELIVERIES_PRIVATE": "true",
        }
        place, said = (f"--host={self.host}", f"--port={self.port}"), len(self._log("serve"))
        self.server = await self._start("serve", variables, "serve", *place, namespace=self.namespace)
        async with asyncio.timeout(PATIENCE):
            while '"web.served"' not in self._log("serve")[said:]:
                assert not self.server.ended.done(), self._log("serve")
                await asyncio.sleep(GLANCE)
        return self.server

    def _log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text() if file.exists() else ""

    async def end_server(self) -> None:
        """Kill the service."""
        if self.server is not None:
            await self.server.kill()

    async def restart_server(self) -> None:
        """Kill the service and start it anew."""
        await self.end_server()
        await self.start_server()

    async def start_runner(self, name: str, address: str, *flags: str, namespace: str = "") -> Fork:
        """Start a runner that knows nothing but the address of its service."""
        variables = {"HOLDFAST_SERVER": address, "HOLDFAST_TOKEN": self._token, "PATH": os.environ["PATH"]}
        fork = await self._start(name, variables, "runner", f"--name={name}", *flags, namespace=namespace)
        self._stack.push_async_callback(fork.kill)
        return fork

    async def _start(self, name: str, variables: dict[str, str], *arguments: str, namespace: str) -> Fork:
        return await self._forker.start(
            arguments=[*arguments, "--log-format=json"],
            variables=variables,
            folder=str(self.folder),
            log=str(self.folder / f"{name}.log"),
            namespace=namespace or None,
        )

    async def ferry(self) -> Ferry:
        """Return a ferry to the service."""
        return await self._stack.enter_async_context(Ferry(self.port))

    async def enqueue(self, script: str, **options: Any) -> holdfast.JobHandle:
        """Enqueue a command that keeps a diary."""
        env = {"DIARY": str(self.diary)} | options.pop("env", {})
        request = holdfast.command(
            script=DIARIED.format(script=script), env=env, artifacts=options.pop("artifacts", ())
        )
        return await self.client.enqueue(request, **options)

    async def until(self, question: str, *parameters: Any) -> None:
        """Wait until a question about the database is answered with true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.db.value(question, *parameters):  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(GLANCE)

    async def log(self, job_id: int, stream: str = "stdout") -> dict[int, bytes]:
        """Return what the service has of a stream, by attempt."""
        kept: dict[int, bytes] = {}
        for attempt, packed, data in await self.db.fetch(CHUNKS, job_id, stream):
            piece = b"" if data is None else gzip.decompress(data) if packed else data
            kept[attempt] = kept.get(attempt, b"") + piece
        return kept

    def lines(self) -> list[tuple[str, int, int, float]]:
        """Return the diary: what happened to which job in which attempt, and when."""
        found = [line.split() for line in self.diary.read_text().splitlines()]
        return [(what, int(job_id), int(attempt), float(at)) for what, job_id, attempt, at in found]

    async def history(self, said: dict[int, bytes]) -> list[str]:
        """Return what is wrong with what happened; *said* is what each job writes to stdout."""
        ends = {job_id: (outcome, attempt) for job_id, outcome, attempt in await self.db.fetch(ENDS)}
        lost = Counter(job_id for job_id, _ in await self.db.fetch(LOST))
        lines = Counter((what, job_id, attempt) for what, job_id, attempt, _ in self.lines())
        problems = [f"{line}" for line in lines if line[0] == "beside-another"]
        problems += [f"{count} times: {line}" for line, count in lines.items() if count > 1]
        for job_id, whole in said.items():
            outcome, attempt = ends.get(job_id, ("lost", 0))
            if outcome != "completed" or lost[job_id] != attempt - 1:
                problems.append(
                    f"job {job_id} is {outcome} by attempt {attempt}, {lost[job_id]} did not end it"
                )
            if not lines["ended", job_id, attempt]:
                problems.append(f"job {job_id} never came to the end of attempt {attempt}")
            for nth, kept in (await self.log(job_id)).items():
                if kept != (whole if nth == attempt else whole[: len(kept)]):
                    problems.append(f"job {job_id}/{nth} logged {len(kept)} bytes that are not what it wrote")
        return problems


@asynccontextmanager
async def yard(dsn: str, forker: Forker, folder: Path) -> AsyncIterator[Yard]:
    """Open a yard and close it again."""
    async with (
        ThrowawayDatabase(dsn, pool_size=2) as db,
        holdfast.Client(dsn, schema=db.schema) as client,
        AsyncExitStack() as stack,
    ):
        yield Yard(db, client, forker, folder / db.schema, stack)
