"""A runner inside the test's loop, and the server it talks to."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.runners.agent.agent import Agent
from holdfast.runners.agent.config import AgentConfig
from holdfast.runtime.events import Events
from holdfast.testing import Probe
from tests.runners.agent.counterpart import REGISTRATION, Counterpart

StartRunner = Callable[..., Any]


@pytest.fixture
async def counterpart() -> AsyncIterator[Counterpart]:
    """A server on loopback."""
    server = Counterpart()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def runner(counterpart: Counterpart, probe: Probe, tmp_path: Path) -> AsyncIterator[StartRunner]:
    """Starts runners: ``await runner(slots=2)``; each is stopped at the end with no grace."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Agent:
            facts: dict[str, Any] = {
                "server": counterpart.address,
                "name": "build-7",
                "host": "build-7.lan",
                "version": "0.1.0",
                "token": REGISTRATION,
                "folder": tmp_path / "runner",
                "environment": dict(os.environ),
            }
            agent = Agent(AgentConfig(**facts | options), Events(probe))
            try:
                await agent.start()
            except HoldfastError:
                await agent.stop()
                raise
            stack.push_async_callback(agent.stop, 0.0)
            return agent

        yield start


class Gate:
    """Where commands wait until the test lets them go on: ``{gate}`` is the piece of shell that does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return f"until test -e {self._path}; do sleep 0.05; done"

    def open(self) -> None:
        """Let them go on."""
        self._path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate that is closed."""
    return Gate(tmp_path / "go")
