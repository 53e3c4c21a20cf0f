"""How far ahead of its slots a worker claims."""

from __future__ import annotations

import time

from holdfast.worker.buffer import Buffer
from holdfast.worker.slots import Slots
from holdfast.worker.turnover import AHEAD, SPAN

# What was measured this many seconds ago says nothing any more.
FORGET = 1.0
# As long as this many claims the buffer is to last, for the next one begins when half of it is left.
CLAIMS = 6
# But no longer than this, in seconds: what waits here is kept from workers that may be idle.
LONGEST = 0.3
# So many jobs of one concurrency key are claimed at once at most: where each has to wait until the end of the
# one before it is written, that takes some milliseconds beside the time that it runs itself.
MOST_IN_A_ROW = 50


class Prefetch:
    """Room in the buffer for a tenth of a second of work at the present pace, and for *most* jobs at most.

    Where claims take long, for the database is far away or many workers are at it, it is up to three tenths.
    The pace is that of slots which have work: time in which they wait for jobs does not count, for each slot
    its share, or a worker whose claims are slow would claim less and less.  It falls at once and rises by
    halves, so that one lucky moment claims nothing that waits long.  Where more is done than
    there was room for before a pace can be measured, there is room for twice as much: so a worker that finds
    a backlog is at its pace after a few claims.
    """

    def __init__(self, slots: Slots, buffer: Buffer, most: int) -> None:
        self._slots, self._buffer, self._most = slots, buffer, most
        self._pace = self._claim = 0.0
        self._note(time.monotonic())
        self.room = 0

    @property
    def low(self) -> int:
        """How many jobs are left in the buffer when it is time to claim again."""
        return self.room // 2

    @property
    def in_a_row(self) -> int:
        """How many jobs of one concurrency key to claim at once: a slot's share of the room."""
        return min(MOST_IN_A_ROW, self.room // self._slots.count)

    def measure(self) -> None:
        """See what the slots have done since the last measurement."""
        now = time.monotonic()
        passed = now - self._noted_at
        worked = passed - (self._buffer.hunger(now) - self._hunger) / self._slots.count
        done = self._slots.done - self._done
        pace = done / max(worked, SPAN)
        # Too little work to tell a slower pace, or none at all, says nothing of it.
        if worked >= SPAN or passed >= FORGET or (pace > self._pace and passed >= SPAN):
            self._pace = pace if pace < self._pace else (self._pace + pace) / 2
        elif done >= max(1, self.room):
            self._pace = max(self._pace, 2 * done / AHEAD)
        else:
            return
        self._note(now)
        self.room = min(self._most, int(self._pace * min(LONGEST, max(AHEAD, CLAIMS * self._claim))))

    def waited(self, seconds: float) -> None:
        """Note how long a claim took."""
        self._claim = (self._claim + seconds) / 2

    def _note(self, now: float) -> None:
        self._noted_at, self._done, self._hunger = now, self._slots.done, self._buffer.hunger(now)
