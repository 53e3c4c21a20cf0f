"""The loop of a process: what ends it and what does not."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.cli import serving


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run *main* on a thread of its own, for this one has a loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(serving.run_on_fastest_loop, main).result(30)


@pytest.fixture(params=["the fastest loop", "asyncio's loop"], autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both loops that a process may run on."""
    if request.param == "asyncio's loop":
        monkeypatch.setattr(serving, "_fastest_loop", asyncio.new_event_loop)


def test_an_exit_in_a_task_ends_that_task_only() -> None:
    """asyncio lets SystemExit out of the loop whichever task raises it; nothing else must suffer by that."""

    async def leave() -> None:
        sys.exit(3)

    async def main() -> str:
        neighbour = asyncio.create_task(asyncio.sleep(0.01, "undisturbed"))
        task = asyncio.create_task(leave())
        await asyncio.wait({task})
        assert isinstance(task.exception(), SystemExit)
        return await neighbour

    assert run(main()) == "undisturbed"


def test_an_exit_of_the_process_itself_is_one() -> None:
    """What the process's own coroutine says is meant."""

    async def main() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    with pytest.raises(SystemExit, match="3"):
        run(main())


IGNORED = """
import asyncio, os, signal, sys
from holdfast.cli import serving

class Deaf:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

async def main():
    asyncio.get_running_loop().call_soon(Deaf)
    try:
        await asyncio.sleep(20)
    finally:
        await asyncio.sleep(0)
        print("cleaned up", flush=True)

if sys.argv[1] == "asyncio's loop":
    serving._fastest_loop = asyncio.new_event_loop
try:
    serving.run_on_fastest_loop(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_is_heard_wherever_it_comes(request: pytest.FixtureRequest) -> None:
    """What a finaliser or a callback of the driver raises is ignored; the program was told to stop."""
    which = request.node.callspec.params["loop"]
    done = subprocess.run(
        [sys.executable, "-c", IGNORED, which], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("cleaned up\ninterrupted\n", "")
