"""Ends a program rung by rung: SIGINT, a grace, SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from holdfast.runners.agent.messages import Rung
from holdfast.runners.agent.process import Program


class Ladder:
    """The way down for one program; *stepped* is told of each rung as it is taken."""

    def __init__(self, program: Program, stepped: Callable[[Rung], None]) -> None:
        self._program, self._stepped = program, stepped
        self._timer: asyncio.TimerHandle | None = None
        self._interrupted = False

    def begin(self, grace: float) -> None:
        """Interrupt the program and kill it after *grace* seconds; asked again, the earlier end counts."""
        loop = asyncio.get_running_loop()
        if not self._interrupted:
            self._interrupted = True
            self._program.signal(signal.SIGINT)
            self._stepped(Rung.INTERRUPTED)
        if self._timer is None or loop.time() + grace < self._timer.when():
            self.stop()
            self._timer = loop.call_later(grace, self._kill)

    def stop(self) -> None:
        """Stay on this rung: the program has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _kill(self) -> None:
        self._program.signal(signal.SIGKILL)
        self._stepped(Rung.KILLED)
