"""What signals mean to a process that runs jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from holdfast.runtime.events import Events

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return what stops a process in good order: SIGHUP too, unless somebody said nohup."""
    return SIGNALS if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*SIGNALS, signal.SIGHUP)


class StopSignals:
    """Hears SIGTERM and SIGINT: the first asks for a stop, the second hurries it, the third ends it here.

    *hurry* is called at the second.  At the third the process is gone at once and
    its jobs are left to a rescue.  The end of the terminal, SIGHUP, is never more than a first signal.
    """

    def __init__(self, events: Events, grace: float, hurry: Callable[[], None]) -> None:
        self._events, self._grace, self._hurry = events, grace, hurry
        self.asked = asyncio.Event()
        self._heard = 0

    def listen(self) -> None:
        """Begin to hear."""
        loop = asyncio.get_running_loop()
        for number in stopping_signals():
            loop.add_signal_handler(number, self.hear, number, number.name)

    def listen_to_parent(self) -> None:
        """Take the end of stdin, which a dying supervisor brings about, for a first signal."""
        asyncio.get_running_loop().add_reader(0, self._parent_said)

    def hear(self, number: int, name: str) -> None:
        """React to one signal."""
        if number == signal.SIGHUP and self.asked.is_set():
            return
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
            if not self.asked.is_set():
                self.hear(signal.SIGTERM, "the supervisor is gone")
