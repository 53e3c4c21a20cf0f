"""What signals mean to a process that runs jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from holdfast.runtime.events import Events

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Hears SIGTERM and SIGINT: the first asks for a stop, the second hurries it, the third ends it here.

    *hurry* is called at the second.  At the third the process is gone at once and
    its jobs are left to a rescue.  The end of the terminal, SIGHUP, is only ever a first signal.
    """

    def __init__(self, events: Events, grace: float, hurry: Callable[[], None]) -> None:
        self._events, self._grace, self._hurry = events, grace, hurry
        self.asked = asyncio.Event()
        self._heard = 0

    def listen(self) -> None:
        """Begin to hear."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.hear, number, signal.Signals(number).name)
        # Whoever says nohup wants it to go on.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._ask, "SIGHUP")

    def listen_to_parent(self) -> None:
        """Take the end of stdin, which a dying supervisor brings about, for a first signal."""
        asyncio.get_running_loop().add_reader(0, self._parent_said)

    def hear(self, number: int, name: str) -> None:
        """React to one signal."""
        self._heard += 1
        match self._heard:
            case 1:
                self._events.emit("stop.requested", signal=name, grace=self._grace)
                self.asked.set()
            case 2:
                self._events.emit("stop.hurried", signal=name)
                self._hurry()
            case _:
                os._exit(128 + number)

    def _parent_said(self) -> None:
        if not os.read(0, 1024):
            asyncio.get_running_loop().remove_reader(0)
            self._ask("the supervisor is gone")

    def _ask(self, name: str) -> None:
        """React to what may come several times, and each time means no more than the first signal."""
        if not self.asked.is_set():
            self.hear(signal.SIGTERM, name)
