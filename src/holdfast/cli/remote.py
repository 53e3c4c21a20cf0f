"""Puts a runner together and runs it from its start to its stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.app.workflow import Workflow
from holdfast.cli.application import application
from holdfast.cli.context import DONE, LEFT_OVER
from holdfast.cli.moments import seconds
from holdfast.cli.serving import run_on_fastest_loop
from holdfast.cli.stopping import StopSignals
from holdfast.errors import OptionInvalid, SettingInvalid
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.runners.agent.agent import Agent
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.metrics import RunnerMetrics
from holdfast.runtime.console import log_to
from holdfast.runtime.events import Events
from holdfast.runtime.exposition import MetricsServer
from holdfast.runtime.logbook import Logbook
from holdfast.runtime.settings import Settings


def agent_config(
    settings: Settings, *, capacity: Sequence[str], once: bool, idle_exit: str | None
) -> AgentConfig:
    """Return how a runner runs; raises `SettingInvalid` and `OptionInvalid`."""
    if settings.server is None:
        msg = "server is not set: give --server, or set HOLDFAST_SERVER"
        raise SettingInvalid(msg, setting="server")
    app = None if settings.app is None else application(settings.app)
    handlers = {} if app is None else app.handlers
    backoffs = {
        kind: handlers[kind].policy.retry
        for kind in sorted(handlers)
        if not isinstance(handlers[kind], Workflow)
    }
    host = socket.gethostname()
    name = settings.name or host
    return AgentConfig(
        server=settings.server,
        token=settings.token,
        name=name,
        host=host,
        version=__version__,
        folder=Path.cwd() / settings.folder / "runners" / name.replace(os.sep, "_"),
        labels=settings.labels,
        queues=settings.queues or (app and app.queues()) or (DEFAULT_QUEUE,),
        capacity=dict(_capacity(one) for one in capacity),
        slots=settings.slots,
        app=settings.app,
        kinds=tuple(backoffs),
        backoffs=backoffs,
        grace=settings.grace,
        once=once,
        idle_exit=seconds("--idle-exit", idle_exit),
        environment=dict(os.environ),
    )


def _capacity(text: str) -> tuple[str, int]:
    queue, equals, number = text.rpartition("=")
    if not equals or not queue or not number.isdecimal() or not 1 <= int(number) <= 10_000:
        raise OptionInvalid("--capacity", text, "give a queue and a number, such as builds=2")
    return queue, int(number)


class RunnerProcess:
    """One runner under a command: its log, its metrics and its signals."""

    def __init__(self, config: AgentConfig, settings: Settings) -> None:
        log_to(sys.stderr, shape=settings.log_format, level=settings.log_level)
        # It tells of every request, of which there are many and all alike.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._settings, self._events = settings, Events(Logbook())
        self._agent = Agent(config, self._events)
        self._metrics: MetricsServer | None = None

    def run(self) -> int:
        """Run until a signal or until everything is done; answers the exit code."""
        return run_on_fastest_loop(self._run())

    async def _run(self) -> int:
        signals = StopSignals(self._events, self._settings.grace, self._agent.hurry)
        signals.listen()
        asked = asyncio.create_task(signals.asked.wait())
        life = asyncio.create_task(self._live())
        try:
            await asyncio.wait({asked, life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            life.cancel()
            await asyncio.wait({asked, life})
            finished = await self._agent.stop()
            if self._metrics is not None:
                self._metrics.stop()
        if not life.cancelled():
            life.result()
        return DONE if finished else LEFT_OVER

    async def _live(self) -> None:
        # First, so that an orchestrator gets its answers while we wait for the server.
        self._serve_metrics()
        await self._agent.start()
        await self._agent.ended()

    def _serve_metrics(self) -> None:
        settings, agent = self._settings, self._agent
        if settings.metrics_port is None:
            return
        metrics = RunnerMetrics(agent)
        self._events.subscribe(metrics)
        self._metrics = MetricsServer(metrics.registry, lives=agent.lives, ready=agent.ready)
        address = self._metrics.start(settings.metrics_host, settings.metrics_port)
        self._events.emit("metrics.served", address=address)
