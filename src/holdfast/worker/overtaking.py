"""What is more urgent than jobs that were claimed ahead: it is announced, and goes before them."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from holdfast.rules.polling import Polling
from holdfast.store.workers import ASLEEP
from holdfast.worker.buffer import Buffer

# Two looks for what is more urgent have this much time between them at least, in seconds.
PACE = 0.005
# It doubles so often where looks find nothing: of many workers that are called for one job, one gets it.
DOUBLED = 3
NEVER = float("inf")


class Overtaking:
    """Which announced jobs are to be claimed although the *buffer* is filled.

    A worker that is called again and again tells the announcers to be silent, and looks into all its *queues*
    by itself for as long as that finds something; see `rules.polling`.
    """

    def __init__(self, buffer: Buffer, queues: Sequence[str]) -> None:
        self._buffer, self._every_queue, self._polling = buffer, queues, Polling()
        self._looked_at, self._in_vain = -NEVER, 0
        self._is_crowded = False
        self._forget()

    def _forget(self) -> None:
        self._best, self._queues = ASLEEP, set[str]()

    @property
    def watches(self) -> bool:
        """True while the worker looks by itself."""
        return self._polling.kept

    @property
    def below(self) -> int:
        """Of which priorities the worker has to be told: those below this one."""
        return 0 if self.watches else self._buffer.worst

    def call(self, best: int, queues: Collection[str] | None) -> None:
        """Jobs were announced in these queues, None: in any, of priority *best* or worse."""
        if best < self._buffer.worst:
            self._polling.call(time.monotonic())
        self._best = min(best, self._best)
        self._queues.update(self._every_queue if queues is None else queues)

    def look_again(self) -> None:
        """Something may have been missed that was not announced."""
        self._best = 0
        self._queues.update(self._every_queue)

    def pause(self, low: int) -> float:
        """Return how many seconds to wait before the next look.

        None is due before at most *low* jobs are left that go before the best that was announced: `has_room`
        tells when.
        """
        worst, self._is_crowded = self._buffer.worst, False
        if self._best >= worst:
            # While nothing waits here it is kept: the claim that comes may bring only what is less urgent.
            if worst and not self.watches:
                self._forget()
            return NEVER
        self._is_crowded = self._ahead_of_best > low
        due_at = self._looked_at + PACE * 2**self._in_vain
        return NEVER if self._is_crowded else max(0.0, due_at - time.monotonic())

    def has_room(self, low: int) -> bool:
        """Whether a look has become due by a job that has left the buffer."""
        return self._is_crowded and self._ahead_of_best <= low

    @property
    def _ahead_of_best(self) -> int:
        """How many jobs in the buffer go before the best that was announced."""
        return self._buffer.better_than(self._best + 1)

    def begin(self) -> tuple[int, tuple[str, ...]]:
        """Begin a look; answers below which priority and in which queues."""
        queues = tuple(queue for queue in self._every_queue if queue in self._queues)
        self._looked_at = time.monotonic()
        self._forget()
        return self._buffer.worst, queues

    def end(self, *, found: bool, more: bool) -> None:
        """End a look; *more* may be there."""
        self._in_vain = 0 if found else min(self._in_vain + 1, DOUBLED)
        if self._polling.look(time.monotonic(), found=found) or more:
            self.look_again()
