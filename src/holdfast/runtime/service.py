"""The one shape of everything that runs: start, turn after turn, stop."""

from __future__ import annotations

import asyncio
import math
import random
import time

from holdfast.runtime.events import Events

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


class Service:
    """Something that runs until it is stopped.

    A subclass writes `turn`, which does one round and answers how many seconds to rest.  `wake` cuts
    the rest short.  A turn that raises is reported as event ``service.failed`` and tried again after a
    pause that doubles from 0.1 s to 10 s.  `start` and `stop` are safe to call twice, `stop` also
    before `start`.  *turned_at* is when the last turn that did not raise ended, on the monotonic clock.
    """

    name = "service"

    def __init__(self, events: Events) -> None:
        self.events = events
        self.turned_at = -math.inf
        # Whether the next rest is cut short already, and what the present one waits for.
        self.is_woken = False
        self._resting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def turn(self) -> float:
        """Do one round; answer how many seconds to rest."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of `stop`."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Begin to take turns."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"holdfast {self.name}")

    async def stop(self) -> None:
        """Cancel the turn under way and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # To await it would take the cancellation of whoever stops for its own.
            await asyncio.wait([task])

    def wake(self) -> None:
        """Cut the rest short."""
        self.is_woken = True
        _end(self._resting)

    async def _run(self) -> None:
        failures = 0
        while True:
            self.is_woken = False
            try:
                rest = await self.turn()
                failures, self.turned_at = 0, time.monotonic()
            except Exception as error:
                failures += 1
                rest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10)) * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, guards nothing
                self.events.emit(
                    "service.failed", service=self.name, error=error, failures=failures, retry_in=rest
                )
                self.is_woken = False
            await self._rest(rest)

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        if self.is_woken:
            return
        # As an event with a timeout, but a third sooner at its turn: a job may wait for that.
        loop = asyncio.get_running_loop()
        self._resting = resting = loop.create_future()
        timer = None if seconds == math.inf else loop.call_later(seconds, _end, resting)
        try:
            await resting
        finally:
            if timer is not None:
                timer.cancel()


def _end(resting: asyncio.Future[None] | None) -> None:
    if resting is not None and not resting.done():
        resting.set_result(None)
