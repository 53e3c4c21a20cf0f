"""Lets the loop turn between handlers that never wait, with however many slots."""

from __future__ import annotations

import asyncio
from collections import deque

# Slots whose handlers never wait let the loop turn about this often, all of them together, in seconds.
LONGEST_RUN = 0.001
# So many slots do the work of all while handlers never wait.
ENOUGH = 2


class Turns:
    """The turns of the loop, as the slots of one worker share them.

    The first job in each turn begins it for all slots.  Slots whose handler never waited go on in the next
    one where they are few, and rest otherwise, until one of the few has to wait.
    """

    def __init__(self) -> None:
        self.count, self.has_begun = 0, False
        self._ends = 0.0
        # How many slots whose last handler never waited are to go on in the next turn.
        self._going_on, self._resting = 0, deque[asyncio.Future[None]]()

    def begin(self, now: float) -> None:
        """Begin a turn, at *now* by the monotonic clock."""
        self.has_begun, self._ends = True, now + LONGEST_RUN
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self.has_begun = False
        self.count += 1
        self._call(ENOUGH - self._going_on)

    def is_over(self, now: float) -> bool:
        """True where nothing more is to begin before the loop has turned."""
        return self.has_begun and now >= self._ends

    def call_all(self) -> None:
        """Have all that rest go on."""
        self._call(len(self._resting))

    def _call(self, count: int) -> None:
        while count > 0 and self._resting:
            rest = self._resting.popleft()
            if not rest.done():
                rest.set_result(None)
                count -= 1

    async def let_turn(self, *, has_waited: bool) -> None:
        """Let the loop turn, for a slot whose handler *has_waited* or not."""
        if has_waited:
            await asyncio.sleep(0)
            return
        if self._going_on == ENOUGH:
            self._resting.append(rest := asyncio.get_running_loop().create_future())
            await rest
            return
        self._going_on += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._going_on -= 1
