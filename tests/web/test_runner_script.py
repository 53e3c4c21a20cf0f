"""The runner in curl and jq: the protocol is what its page says, in another language too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.errors import JobCancelled, JobFailed
from holdfast.model.token import Role
from tests.web.conftest import Serve, Service

SCRIPT = Path(__file__).parents[2] / "examples" / "runner.sh"
Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


def command(script: str) -> JobRequest:
    """A command that is a script."""
    return JobRequest("command", json.dumps({"script": script}))


def has_ended(program: psutil.Process) -> bool:
    """Whether it does nothing any more; whose parent has gone may wait long for somebody to take note."""
    try:
        return program.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
async def start(service: Service) -> AsyncIterator[Start]:
    """Starts the script as a runner, and ends it with all it has started."""
    started: list[asyncio.subprocess.Process] = []

    async def begin(
        name: str = "shell", *labels: str, at: Service = service, **environment: str
    ) -> asyncio.subprocess.Process:
        token, _ = await at.token(Role.REGISTRAR, f"registrar {len(started)}")
        known = os.environ | {"HOLDFAST_SERVER": at.url, "HOLDFAST_TOKEN": token} | environment
        process = await asyncio.create_subprocess_exec(
            "bash", str(SCRIPT), name, *labels, env=known, start_new_session=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def test_it_runs_a_command_and_leaves(service: Service, client: holdfast.Client, start: Start) -> None:
    """Output and result arrive; with its work done it is offline, not lost."""
    job_id = (await client.enqueue(command("echo out; echo err >&2"), labels=["shell"])).id
    runner = await start("shell", "shell", "linux", HOLDFAST_ONCE="1")
    assert await client.wait(job_id, timeout=30) == {"exit_code": 0}
    assert await runner.wait() == 0
    assert await service.db.value("select state from holdfast.workers") == "offline"
    written = await service.db.fetch("select stream, size from holdfast.log_streams order by stream")
    assert written == [("stderr", 4), ("stdout", 4)]


async def test_it_reports_a_failure_by_its_exit_code(client: holdfast.Client, start: Start) -> None:
    """What the program said is what people see."""
    job_id = (await client.enqueue(command("exit 7"), max_attempts=1)).id
    await start(HOLDFAST_ONCE="1")
    with pytest.raises(JobFailed, match="exit code 7"):
        await client.wait(job_id, timeout=30)


async def test_it_stops_a_command_that_is_cancelled(
    service: Service, client: holdfast.Client, start: Start, eventually: Any
) -> None:
    """The cancel reaches the program as SIGINT, and the ladder is written down."""
    job_id = (await client.enqueue(command("echo begun; exec sleep 60"))).id
    await start()
    await eventually(
        lambda: service.db.value("select exists (select from holdfast.log_streams where size > 0)")
    )
    await client.cancel(job_id)
    with pytest.raises(JobCancelled, match="after a cancel"):
        await client.wait(job_id, timeout=30)
    rungs = await service.db.value("select rungs from holdfast.assignments")
    assert "delivered" in rungs


async def test_a_killed_runner_gives_its_job_back_when_it_is_started_again(
    service: Service, client: holdfast.Client, start: Start, eventually: Any
) -> None:
    """The same name is the same runner; its first sync lists nothing, so what it held is tried again."""
    marker = "select exists (select from holdfast.live_jobs where state = 'running')"
    job_id = (await client.enqueue(command("true"))).id
    slow = (await client.enqueue(command("sleep 20"), priority=0)).id
    first = await start()
    await eventually(lambda: service.db.value(marker))
    os.killpg(first.pid, signal.SIGKILL)
    await first.wait()
    await client.cancel(slow)
    await start()
    assert await client.wait(job_id, timeout=30) == {"exit_code": 0}
    assert await service.db.value("select term from holdfast.workers") == 2


@pytest.mark.parametrize("how", ["taken away", "stopped"])
async def test_it_leaves_no_program_behind(
    service: Service, client: holdfast.Client, start: Start, eventually: Any, tmp_path: Path, how: str
) -> None:
    """A job that was taken from it runs elsewhere by now; and whoever ends the script ends its command."""
    note = tmp_path / "pid"
    await client.enqueue(command(f"echo $$ >{note}; exec sleep 60"), max_attempts=1)
    runner = await start()
    await eventually(lambda: asyncio.sleep(0, note.exists() and note.read_text().strip()))
    program = psutil.Process(int(note.read_text()))
    if how == "stopped":
        runner.terminate()
        await asyncio.wait_for(runner.wait(), 20)
    else:
        await service.db.fetch("update holdfast.live_jobs set attempt = attempt + 1")
    await eventually(lambda: asyncio.sleep(0, has_ended(program)))


async def test_it_sends_no_more_of_a_log_that_is_full(
    serve: Serve, client: holdfast.Client, start: Start
) -> None:
    """The job may log no more, and goes on to its end."""
    service = await serve(log_limit=1000)
    job_id = (await client.enqueue(command("seq 10000; echo done >&2"))).id
    await start(at=service, HOLDFAST_ONCE="1")
    assert await client.wait(job_id, timeout=30) == {"exit_code": 0}
    assert await service.db.value("select bool_and(intact) from holdfast.log_streams where size > 0")
