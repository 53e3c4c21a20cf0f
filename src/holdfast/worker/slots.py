"""The slots: a fixed number of coroutines that take jobs from the buffer and run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.model.outcome import Transition
from holdfast.runtime.events import Events
from holdfast.worker.buffer import Buffer
from holdfast.worker.perform import Performer
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held, Running

# A slot whose handlers never wait lets the loop turn at least this often, in seconds.
LONGEST_RUN = 0.005

# An attempt with its decision; None where nothing had to be written.
Served = tuple[Running, Transition | None]


class Slots:
    """Runs up to *count* attempts at once.

    *freed* is called whenever an attempt has ended, so that the claimer can look at once.
    """

    def __init__(
        self, count: int, buffer: Buffer, performer: Performer, reporter: Reporter, held: Held, events: Events
    ) -> None:
        self.count = count
        self.busy = 0
        self.done = 0
        self.freed: Callable[[], None] = lambda: None
        self._buffer, self._performer, self._reporter = buffer, performer, reporter
        self._held, self._events = held, events
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to take jobs."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._slot(), name=f"holdfast slot {n}") for n in range(self.count)
            ]

    async def stop(self) -> None:
        """End all slots at once."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _slot(self) -> None:
        turned = time.monotonic()
        while True:
            await self.serve()
            if time.monotonic() - turned > LONGEST_RUN:
                await asyncio.sleep(0)
                turned = time.monotonic()

    async def serve(self) -> Served:
        """Take the best job, run its handler to the end and report what the attempt came to."""
        running = Running(await self._buffer.take())
        self._held.running[running.fence] = running
        self.busy += 1
        self._events.emit("attempt.started", running=running)
        try:
            decision = await self._performer.perform(running)
        finally:
            self.busy -= 1
            self._held.running.pop(running.fence, None)
        self.done += 1
        self._events.emit("attempt.ended", running=running, decision=decision)
        if decision is not None:
            self._reporter.report(running, decision)
        else:
            self._held.drop([running.fence])
        self.freed()
        return running, decision
