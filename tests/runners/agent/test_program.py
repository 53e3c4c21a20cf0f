"""`holdfast runner` as a process: signals, exit codes, metrics, and a death."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.conftest import free_port
from tests.runners.agent.counterpart import REGISTRATION, Counterpart

Start = Callable[..., Any]


@pytest.fixture
async def program(counterpart: Counterpart, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the command: ``await program("--once")``; what still runs at the end is killed."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*flags: str, token: str = REGISTRATION) -> asyncio.subprocess.Process:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.cli.main", "runner", "--server", counterpart.address),
            *("--name", "cli", "--log-format", "json", *flags),
            cwd=tmp_path,
            env=kept | {"HOLDFAST_TOKEN": token},
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def end_of(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """The exit code of a process and what it logged."""
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, errors.decode()


async def test_sigterm_lets_commands_finish(counterpart: Counterpart, program: Start) -> None:
    """The first signal drains; the command ends by itself and the exit code is 0."""
    process = await program("--grace", "20s")
    entry = await counterpart.offer(script="trap '' INT TERM; echo up; sleep 1; echo done")
    await counterpart.until(lambda: "up" in entry.log(), 30)
    process.send_signal(signal.SIGTERM)
    assert (await end_of(process))[0] == 0
    assert entry.log() == "up\ndone\n"
    assert counterpart.left


async def test_a_second_signal_hands_back(counterpart: Counterpart, program: Start) -> None:
    """The grace ends, the command is interrupted and released, and the exit code says so."""
    process = await program("--grace", "60s")
    entry = await counterpart.offer(script="echo up; sleep 100")
    await counterpart.until(lambda: "up" in entry.log(), 30)
    process.send_signal(signal.SIGTERM)
    await counterpart.until(lambda: counterpart.syncs[-1]["draining"])
    process.send_signal(signal.SIGINT)
    assert (await end_of(process))[0] == 3
    assert entry.report is not None
    assert entry.report["outcome"] == "released"


async def test_a_killed_runner_leaves_nothing_running_and_begins_anew(
    counterpart: Counterpart, program: Start, eventually: Any, tmp_path: Path
) -> None:
    """SIGKILL of the runner takes its command along; the next start lists nothing and tidies up."""
    process = await program()
    entry = await counterpart.offer(script="echo $$; sleep 100")
    await counterpart.until(lambda: "\n" in entry.log(), 30)
    process.kill()

    async def is_gone() -> bool:
        return not psutil.pid_exists(int(entry.log()))

    await eventually(is_gone)
    entry.wanted = False
    before = len(counterpart.syncs)
    await program()
    await counterpart.until(lambda: len(counterpart.syncs) > before, 30)
    assert counterpart.syncs[before]["held"] == []
    assert counterpart.term == 2
    assert "assignments" not in os.listdir(tmp_path / ".holdfast/runners/cli")


async def test_metrics_are_served(counterpart: Counterpart, program: Start, eventually: Any) -> None:
    """What was done is counted; the runner says that it lives and is ready."""
    completed = 'holdfast_runner_assignments_total{kind="command",outcome="completed"} 1.0'
    port = free_port()
    await program("--metrics-port", str(port))
    entry = await counterpart.offer(script="echo 12345")
    await counterpart.until(lambda: entry.report is not None, 30)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert (await client.get("/readyz")).status_code == 200

        async def metrics() -> str:
            # It is counted once the answer to the report has come.
            text = (await client.get("/metrics")).text
            return text if completed in text else ""

        text = await eventually(metrics)
    assert "holdfast_runner_log_bytes_total 6.0" in text
    assert "holdfast_runner_slots 10.0" in text


async def test_what_is_wrong_is_said_in_one_sentence(program: Start) -> None:
    """A registration that is refused ends the command with 1, wrong use with 2, and both say why."""
    unknown = "hfg_wrong"
    code, errors = await end_of(await program(token=unknown))
    assert code == 1
    assert "the Holdfast server refused (401): this token is not known" in errors
    assert "Traceback" not in errors
    code, errors = await end_of(await program("--capacity", "builds"))
    assert (code, "give a queue and a number, such as builds=2" in errors) == (2, True)
