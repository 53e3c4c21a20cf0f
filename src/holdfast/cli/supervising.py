"""Runs several worker processes under one command."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from holdfast.cli.configs import database_config
from holdfast.cli.context import Invocation
from holdfast.cli.stopping import stopping_signals
from holdfast.errors import DatabaseUnavailable
from holdfast.runtime.console import log_to
from holdfast.runtime.events import Events
from holdfast.runtime.logbook import Logbook
from holdfast.runtime.settings import CONFIG_VARIABLE, PREFIX, Settings
from holdfast.runtime.supervisor import Command, Supervisor
from holdfast.store import migrate
from holdfast.store.database import Database

# What a process may need beyond the grace to hand jobs back and leave, in seconds.
BEYOND_GRACE = 20.0


async def supervise(call: Invocation, settings: Settings, given: dict[str, Any], *, waits: bool) -> int:
    """Run as many worker processes as asked; answers the exit code of the worst of them."""
    log_to(sys.stderr, shape=settings.log_format, level=settings.log_level)
    await _look_at_database(settings, waits=waits)
    events = Events(Logbook())
    commands = [_command(call, settings, given, number) for number in range(settings.processes)]
    supervisor = Supervisor(commands, events, patience=settings.grace + BEYOND_GRACE)
    heard = 0

    def hear(number: int) -> None:
        nonlocal heard
        # The end of the terminal may be told several times, and is never more than a first signal.
        if number == signal.SIGHUP and heard:
            return
        heard += 1
        supervisor.stop(number) if heard < 3 else supervisor.kill()

    loop = asyncio.get_running_loop()
    for number in stopping_signals():
        loop.add_signal_handler(number, hear, number)
    return await supervisor.run()


async def _look_at_database(settings: Settings, *, waits: bool) -> None:
    """Fail before any process is started where the database or its schema would refuse all of them."""
    database = Database(database_config(settings, application_name="holdfast supervisor", pool_size=1))
    try:
        await database.open()
        await migrate.check(database)
    except DatabaseUnavailable:
        if not waits:
            raise
    finally:
        await database.close()


def _command(call: Invocation, settings: Settings, given: dict[str, Any], number: int) -> Command:
    """Return the command of one process: flags travel as variables: a process list shows no secret."""
    own: dict[str, Any] = {"processes": 1}
    if settings.metrics_port is not None:
        own["metrics_port"] = settings.metrics_port + number
    if settings.name is not None:
        own["name"] = f"{settings.name}-{number}"
    chosen = {name: value for name, value in (call.flags | given | own).items() if value is not None}
    variables = {f"{PREFIX}{name.upper()}": _as_text(value) for name, value in chosen.items()}
    if call.config is not None:
        variables[CONFIG_VARIABLE] = str(call.config)
    arguments = (sys.executable, "-m", "holdfast.cli.main", "worker", "--supervised")
    return Command(arguments, {**os.environ, **variables})


def _as_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
