"""Puts log, metrics and their server together for one process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import time
from collections.abc import Iterable, Sequence

from holdfast.cli.wiring import MaintenanceProcess
from holdfast.errors import HoldfastError
from holdfast.model.worker import QueueRecord
from holdfast.runtime.console import log_to
from holdfast.runtime.events import Events
from holdfast.runtime.exposition import MetricsServer
from holdfast.runtime.logbook import Logbook
from holdfast.runtime.metrics import Metrics
from holdfast.runtime.settings import Settings
from holdfast.store import queues
from holdfast.store.database import Database

# Queue counts are looked up at most this often, and a scrape waits this long for them, in seconds.
FRESH = 5.0
PATIENCE = 2.0


class Telemetry:
    """What one process says about itself: log lines always, metrics where somebody can ask for them.

    That is so where a port is set for them, and where *is_served*: the process has a service.
    """

    def __init__(self, settings: Settings, kinds: Iterable[str], *, is_served: bool = False) -> None:
        log_to(sys.stderr, shape=settings.log_format, level=settings.log_level)
        self._settings = settings
        self.events = Events(Logbook())
        is_asked = is_served or settings.metrics_port is not None
        self.metrics = Metrics(kinds) if is_asked else None
        if self.metrics is not None:
            self.events.subscribe(self.metrics)
        self._server: MetricsServer | None = None

    def serve(self, process: MaintenanceProcess) -> None:
        """Begin to serve the metrics of *process*."""
        metrics, port = self.metrics, self._settings.metrics_port
        if metrics is None:
            return
        metrics.running = process.running_kinds
        metrics.queues = QueueCounts(process.database, asyncio.get_running_loop())
        if port is None:
            return
        self._server = MetricsServer(metrics.registry, lives=process.lives, ready=process.ready)
        address = self._server.start(self._settings.metrics_host, port)
        self.events.emit("metrics.served", address=address)

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.stop()


class QueueCounts:
    """The rolled-up counts of all queues, asked from the thread of a scrape."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database, self._loop = database, loop
        self._known: Sequence[QueueRecord] = ()
        self._asked_at = -FRESH

    def __call__(self) -> Sequence[QueueRecord]:
        """Return the counts, empty where the database does not answer in time."""
        if time.monotonic() - self._asked_at >= FRESH:
            self._asked_at = time.monotonic()
            asked = asyncio.run_coroutine_threadsafe(self._database.run(queues.list_queues()), self._loop)
            try:
                self._known = asked.result(PATIENCE)
            except (HoldfastError, concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
                asked.cancel()
                self._known = ()
        return self._known
