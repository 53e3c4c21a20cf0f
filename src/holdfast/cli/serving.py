"""Runs one worker process from its start to its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.app.registry import App
from holdfast.cli.context import DONE, LEFT_OVER, database_config
from holdfast.cli.stopping import StopSignals
from holdfast.cli.telemetry import Telemetry
from holdfast.cli.wiring import WorkerProcess
from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.runtime.settings import Settings
from holdfast.worker.config import WorkerConfig

T = TypeVar("T")

LONGEST_PAUSE = 5.0


def run_on_fastest_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on uvloop where it exists."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def worker_config(settings: Settings, app: App) -> WorkerConfig:
    """Return what a worker needs to know of *settings*."""
    # Two claims and finishes in flight, the leader's duties, and some for handlers' transactions.
    pool = min(20, 6 + settings.slots)
    return WorkerConfig(
        database=database_config(settings, application_name="holdfast worker", pool_size=pool),
        queues=settings.queues or app.queues() or (DEFAULT_QUEUE,),
        slots=settings.slots,
        ttl=settings.ttl,
        poll=settings.poll,
        grace=settings.grace,
        prefetch=settings.prefetch,
        labels=settings.labels,
        name=settings.name,
        listen=settings.listen,
    )


class Serving:
    """One worker process under a command.

    *waits* lets the start wait for a database that is away; *supervised* ends the process with its
    supervisor.  After the start no outage ends it.
    """

    def __init__(
        self, app: App, settings: Settings, *, waits: bool = False, supervised: bool = False
    ) -> None:
        self._app, self._settings = app, settings
        self._waits, self._supervised = waits, supervised
        self._telemetry = Telemetry(settings, app)
        self._process = WorkerProcess(app, worker_config(settings, app), self._telemetry.events)
        self.abandoned = 0

    async def run(self) -> int:
        """Run until a signal or a drain; answers the exit code."""
        worker = self._process.worker
        signals = StopSignals(self._telemetry.events, self._settings.grace, lambda _: worker.hurry())
        signals.listen()
        if self._supervised:
            signals.listen_to_parent()
        drained = asyncio.Event()
        worker.on_drain = drained.set
        start = asyncio.create_task(self._start())
        asked = asyncio.create_task(signals.asked.wait())
        try:
            await asyncio.wait({start, asked}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                await start
                self._telemetry.serve(self._process)
                await _first(asked, asyncio.create_task(self._empty_after(drained)))
            else:
                start.cancel()
                with suppress(asyncio.CancelledError):
                    await start
        finally:
            finished = await self._process.stop()
            self.abandoned = worker.abandoned
            self._telemetry.stop()
        return DONE if finished else LEFT_OVER

    async def _empty_after(self, drained: asyncio.Event) -> None:
        """Wait until somebody has asked for a drain and the last job has ended, however long it takes."""
        await drained.wait()
        await self._process.worker.held.wait_empty()

    async def _start(self) -> None:
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


async def _first(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
