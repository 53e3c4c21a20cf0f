"""A supervisor keeps real processes running and ends them well."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.events import Events
from holdfast.runtime.supervisor import Command, Supervisor
from holdfast.testing import Probe

# Says it is there by a file, then waits for a signal and ends as it is told.
PATIENT = """
import pathlib, signal, sys, time
def leave(*_): sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, leave)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""
STUBBORN = PATIENT.replace(
    "signal.signal(signal.SIGTERM, leave)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
)


@pytest.fixture
async def supervise(tmp_path: Path, probe: Probe) -> AsyncIterator[Callable[..., Any]]:
    """Runs programs under a supervisor; answers it and the task of its run."""
    tasks = []
    supervisors = []

    async def start(*programs: tuple[str, int], patience: float = 20.0) -> tuple[Supervisor, Any]:
        commands = [
            Command((sys.executable, "-c", text, str(tmp_path / f"there{n}"), str(code)), os.environ)
            for n, (text, code) in enumerate(programs)
        ]
        supervisor = Supervisor(commands, Events(probe), patience=patience)
        supervisors.append(supervisor)
        tasks.append(asyncio.create_task(supervisor.run()))
        return supervisor, tasks[-1]

    yield start
    for supervisor, task in zip(supervisors, tasks, strict=True):
        supervisor.stop()
        supervisor.kill()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def there(tmp_path: Path, eventually: Callable[..., Any]) -> Callable[[int], Any]:
    """Waits until a program has said that it is there."""

    async def wait(number: int) -> None:
        async def is_there() -> bool:
            return (tmp_path / f"there{number}").exists()

        await eventually(is_there)

    return wait


async def test_a_stop_reaches_every_process_and_the_worst_code_tells(supervise: Any, there: Any) -> None:
    """One process that left work behind makes the whole command say so."""
    supervisor, run = await supervise((PATIENT, 0), (PATIENT, 3))
    await there(0)
    await there(1)
    supervisor.stop(signal.SIGTERM)
    assert await run == 3


async def test_a_process_that_dies_is_started_again(supervise: Any, there: Any, probe: Probe) -> None:
    """A kill is answered by a new process, after a pause that grows."""
    supervisor, run = await supervise((PATIENT, 0))
    await there(0)
    first = probe.seen("process.started")[0]["pid"]
    os.kill(first, signal.SIGKILL)
    again = await probe.wait_for("process.started", lambda fields: fields["pid"] != first)
    os.kill(again["pid"], signal.SIGKILL)
    await probe.wait_for("process.died", times=2)
    died = probe.seen("process.died")
    assert [one["end"] for one in died] == ["was ended by SIGKILL"] * 2
    assert died[1]["retry_in"] == 2 * died[0]["retry_in"]
    supervisor.stop()
    assert await run == 0


async def test_a_process_that_cannot_be_started_is_tried_again(tmp_path: Path, probe: Probe) -> None:
    """The others go on meanwhile; what was lacking is told."""
    program = tmp_path / "program"
    supervisor = Supervisor([Command((str(program),), os.environ)], Events(probe), patience=20.0)
    run = asyncio.create_task(supervisor.run())
    failed = await probe.wait_for("process.unstarted")
    assert isinstance(failed["error"], FileNotFoundError)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert await run == 0
    assert len(probe.seen("process.started")) == 1


async def test_a_stop_waits_for_no_process_that_cannot_be_started(tmp_path: Path, probe: Probe) -> None:
    """Nothing had begun, so nothing was left behind."""
    commands = [Command((str(tmp_path / "program"),), os.environ)]
    supervisor = Supervisor(commands, Events(probe), patience=20.0)
    run = asyncio.create_task(supervisor.run())
    await probe.wait_for("process.unstarted")
    supervisor.stop()
    assert await run == 0


async def test_a_drained_process_stays_away(supervise: Any, there: Any, probe: Probe) -> None:
    """An end with 0 was wanted; when all have ended, so does the supervisor."""
    _, run = await supervise((PATIENT, 0), (PATIENT, 0))
    for number in (0, 1):
        await there(number)
        started = await probe.wait_for("process.started", lambda one, its=number: one["number"] == its)  # type: ignore[misc]
        os.kill(started["pid"], signal.SIGTERM)
    assert await run == 0
    assert not probe.seen("process.died")


async def test_wrong_use_ends_all_processes(supervise: Any) -> None:
    """What no restart can mend is not tried again."""
    _, run = await supervise((PATIENT, 0), ("raise SystemExit(2)", 0))
    assert await run == 2


async def test_a_process_that_ignores_the_stop_is_killed(supervise: Any, there: Any, probe: Probe) -> None:
    """Patience has an end, and a kill is told by the exit code."""
    supervisor, run = await supervise((STUBBORN, 0), patience=0.2)
    await there(0)
    supervisor.stop()
    assert await run == 1
    assert probe.seen("process.killed")
