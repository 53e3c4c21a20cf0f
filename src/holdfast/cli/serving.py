"""Runs one process from its start to its stop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.app.registry import App
from holdfast.cli.configs import database_config, maintenance_config, worker_config
from holdfast.cli.context import DONE, LEFT_OVER
from holdfast.cli.stopping import SIGNALS, StopSignals, stopping_signals
from holdfast.cli.telemetry import Telemetry
from holdfast.cli.wiring import MaintenanceProcess, Part, WorkerProcess
from holdfast.errors import DatabaseUnavailable
from holdfast.runtime.metrics import Metrics
from holdfast.runtime.settings import Settings

T = TypeVar("T")

# What makes the service of a process.
Web = Callable[[MaintenanceProcess, Metrics], Part]

MAINTENANCE_POOL, SERVICE_POOL = 5, 20
LONGEST_PAUSE = 5.0
LONGEST_WIND_UP = 1.0
# In objects, and in rounds of the younger generation.
COLLECTED_AFTER = (20_000, 20, 20)


def run_on_fastest_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on uvloop where it exists.

    Ctrl-C cancels *main*, whatever runs at that moment, and so do SIGTERM and the end of the terminal; a
    second one ends it at once.  A `StopSignals` that listens gets them instead.
    Unlike `asyncio.run` it does not wait for ever for what will not be cancelled: that ends with the process.
    Nor does `sys.exit` in a task that a handler has started end the process, as asyncio has it: that is the
    end of the task.
    """
    loop = _fastest_loop()
    try:
        asyncio.set_event_loop(loop)
        life = loop.create_task(main)
        _cancel_when_interrupted(loop, life)
        while True:
            try:
                return loop.run_until_complete(life)
            except SystemExit:
                if life.done():
                    raise
            except asyncio.CancelledError:
                raise (KeyboardInterrupt if life.cancelling() else asyncio.CancelledError) from None
    finally:
        loop.run_until_complete(_wind_up())
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_when_interrupted(loop: asyncio.AbstractEventLoop, life: asyncio.Task[Any]) -> None:
    # Raised where it happens to come, an interrupt may be ignored, or break what others rely on.
    def interrupt() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        # The end of the terminal may be told several times.
        if not life.cancelling():
            life.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in stopping_signals():
            loop.add_signal_handler(number, interrupt)


def _fastest_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_event_loop()


async def _wind_up() -> None:
    """Cancel what is left on the loop and give it a moment to end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LONGEST_WIND_UP)
    await asyncio.get_running_loop().shutdown_asyncgens()


def serve(
    settings: Settings,
    app: App | None,
    *,
    waits: bool = False,
    supervised: bool = False,
    web: Web | None = None,
) -> int:
    """Run a process until it is told to stop and answer its exit code.

    Without *app* it maintains and runs no jobs.  *waits* lets the start wait for a database that is away;
    *supervised* ends the process with its supervisor; with *web* it serves the service too.  After the start
    no outage ends it.
    """
    telemetry = Telemetry(settings, () if app is None else app.handlers, is_served=web is not None)
    process = _process(settings, app, telemetry, is_served=web is not None)
    serving = Serving(process, telemetry, waits=waits, web=web)
    signals = StopSignals(telemetry.events, settings.grace, process.hurry)
    return run_on_fastest_loop(serving.run(signals, supervised=supervised))


def _process(
    settings: Settings, app: App | None, telemetry: Telemetry, *, is_served: bool
) -> MaintenanceProcess:
    maintenance = maintenance_config(settings)
    if app is not None:
        return WorkerProcess(app, worker_config(settings, app), telemetry.events, maintenance)
    name, pool = (
        ("holdfast service", SERVICE_POOL) if is_served else ("holdfast maintenance", MAINTENANCE_POOL)
    )
    database = database_config(settings, application_name=name, pool_size=pool)
    listens = settings.listen and not settings.pgbouncer
    return MaintenanceProcess(database, telemetry.events, maintenance, listens=listens)


class Serving:
    """One process under a command."""

    def __init__(
        self, process: MaintenanceProcess, telemetry: Telemetry, *, waits: bool, web: Web | None = None
    ) -> None:
        self._process, self._telemetry, self._waits, self._web = process, telemetry, waits, web

    async def run(self, signals: StopSignals, *, supervised: bool = False) -> int:
        """Run until a signal or a drain; answers the exit code."""
        signals.listen()
        if supervised:
            signals.listen_to_parent()
        asked = asyncio.create_task(signals.asked.wait())
        life = asyncio.create_task(self._live())
        try:
            await asyncio.wait({asked, life}, return_when=asyncio.FIRST_COMPLETED)
            await _end(asked)
            await _end(life)
        finally:
            finished = await self._process.stop()
            self._telemetry.stop()
        return DONE if finished else LEFT_OVER

    async def _live(self) -> None:
        # First, so that an orchestrator gets its answers while we wait for the database.
        self._telemetry.serve(self._process)
        if self._web is not None and self._telemetry.metrics is not None:
            # It takes a while to build, in which a signal is to be heard already.
            self._process.parts.append(self._web(self._process, self._telemetry.metrics))
        await self._start()
        await self._process.drained()

    async def _start(self) -> None:
        # Not when it works already: that takes hundredths of a second.
        spare_collector()
        pause = 0.5
        while True:
            try:
                await self._process.start()
            except DatabaseUnavailable as error:
                if not self._waits:
                    raise
                self._telemetry.events.emit("database.awaited", error=error, retry_in=pause)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                return


def spare_collector() -> None:
    """Let the collector of cycles look at less, and less often, in a process that is ours alone.

    What was made by now stays for good.  Of the rest a request or a job makes many objects and hardly a
    cycle.  To look after every 700 of them took a third of the processor time of a claim over HTTP, and a
    fifth of that of a worker with a thousand jobs in its hands.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task that still runs; raise what an ended one raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
