"""Renews the worker's lease from a thread and a connection of its own.

A handler that blocks the event loop, or is busy in Python code, must not cost a lease; a process whose loop
has not turned for longer than its jobs may take must not keep one.  A call into C that keeps the interpreter
to itself for longer than the ttl does cost it: this thread cannot run meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

from holdfast.model.worker import WorkerState
from holdfast.runtime.events import Events
from holdfast.store import workers
from holdfast.store.database import DatabaseConfig
from holdfast.store.dedicated import DedicatedConnection

# How long it waits, at most, after a renewal that failed or was not to be made, in seconds.
RETRY = 1.0
# How often the loop notes that it turns, in seconds.
PULSE = 1.0


def now() -> float:
    """Return the time in seconds by a clock that goes on while the machine sleeps, where there is one.

    Whoever wakes finds its lease run out, as PostgreSQL does, which need not have slept.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease:
    """The right of this worker to hold jobs, kept alive by a thread.

    It lasts *ttl* seconds and is renewed *every* so many.  *changed* is called from that thread with the
    state found at each renewal; None means that the worker was declared lost.  *patience* answers how many
    seconds the loop may stand still.
    """

    def __init__(
        self,
        config: DatabaseConfig,
        events: Events,
        *,
        ttl: float,
        every: float,
        patience: Callable[[], float],
    ) -> None:
        self._config, self._events = config, events
        self._ttl, self._every, self._patience = ttl, every, patience
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_turn = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewed_at = now()

    @property
    def holds(self) -> bool:
        """True while nobody can have declared this worker lost: it was renewed less than a ttl ago."""
        return now() - self._renewed_at < self._ttl

    @property
    def stood_still(self) -> float:
        """For how many seconds the loop has not turned."""
        return time.monotonic() - self._last_turn

    @property
    def is_watched(self) -> bool:
        """True while the loop turns often enough for a renewal to be right."""
        return self.stood_still <= self._patience()

    def start(self, worker_id: int, changed: Callable[[WorkerState | None], None]) -> None:
        """Begin to renew the lease of *worker_id*; call it on the loop that is to be watched."""
        self._loop = asyncio.get_running_loop()
        self._renewed_at = now()
        self._pulse()
        self._ended = threading.Event()
        arguments = (worker_id, changed, self._ended)
        self._thread = threading.Thread(target=self._run, args=arguments, name="holdfast lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; the thread ends by itself."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _pulse(self) -> None:
        """Note that the loop turns."""
        if self._timer is not None:
            self._timer.cancel()
        self._last_turn = time.monotonic()
        assert self._loop is not None  # noqa: S101 - set by start
        self._timer = self._loop.call_later(PULSE, self._pulse)

    def _run(
        self, worker_id: int, changed: Callable[[WorkerState | None], None], ended: threading.Event
    ) -> None:
        # A renewal that hangs is worth less than a new connection.
        connection = DedicatedConnection(self._config, "lease", patience=max(2.0, self._every))
        rest = self._every
        while not ended.wait(rest):
            try:
                if not self.is_watched:
                    self._events.emit("lease.abandoned", worker_id=worker_id, seconds=self.stood_still)
                    rest = RETRY
                    continue
                asked_at = now()
                state = connection.run(workers.renew_worker(worker_id))
            except Exception as error:
                # Whatever it is: a thread that ended by it would let the lease run out, and nobody know why.
                self._events.emit("lease.delayed", worker_id=worker_id, error=error)
                rest = min(RETRY, self._every)
                continue
            if state is not None:
                self._renewed_at = asked_at
            rest = self._every
            changed(state)
            if state is None:
                break
        connection.close()
