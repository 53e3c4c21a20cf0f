"""What all assignments of one runner share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.messages import Fence, Intervals, Report
from holdfast.runtime.events import Events


class Bench:
    """What all executions of one runner share.

    *changed* is called whenever there is news for the server; *in_contact* says whether it answers, *silence*
    for how many seconds it may have taken this runner for lost; *number* numbers the next request, *keep* has
    an end outlive this process.
    """

    def __init__(self, config: AgentConfig, connection: Connection, events: Events) -> None:
        self.config, self.connection, self.events = config, connection, events
        self.intervals = Intervals()
        self.changed: Callable[[], None] = lambda: None
        self.in_contact: Callable[[], bool] = lambda: True
        self.silence: Callable[[], float] = lambda: 0.0
        self.number: Callable[[], int] = lambda: 0
        self.keep: Callable[[Fence, Report], None] = lambda _fence, _report: None
        self._rest: asyncio.TimerHandle | None = None

    @property
    def is_resting(self) -> bool:
        """True while this runner begins nothing new, for what its machine is short of."""
        return self._rest is not None

    def rest(self, seconds: float) -> None:
        """Begin nothing new for so long."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._rest = None
        self.changed()
