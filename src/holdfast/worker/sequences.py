"""Jobs that share a concurrency key and are here at once: each begins when the one before it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import Fence
from holdfast.worker.buffer import FENCE, Buffer, Entry, QueueKey
from holdfast.worker.bundles import Bundles
from holdfast.worker.permits import Permits

# Who looked in vain for more keys does not do so again for this many seconds.
PATIENCE = 1.0


class Sequences:
    """Whose turn it is of each key of which this worker has claimed several jobs.

    The one that leads its key is in the *buffer* like any other job, and runs.  The next leads as soon as it
    has completed, if both stand in one bundle: then both are told by one clock, and what is recorded of them
    never overlaps, though the first is not written yet.  Else the next has to wait until the database knows
    what became of the one before it.
    """

    def __init__(self, buffer: Buffer, permits: Permits, bundles: Bundles) -> None:
        self._buffer, self._permits, self._bundles = buffer, permits, bundles
        # Who leads or has led, until its end is written.
        self._leaders: dict[Fence, _Line] = {}
        # Whether a key that leads to nobody here was let go since this was last set.
        self.let_go = False
        # Whether to claim again at once: the last claim has read as far as it was to, and brought few keys.
        self.look_behind = False
        self._in_vain_at = -PATIENCE

    def brought(self, jobs: int, wanted: int, *, slots: int, busy: int) -> None:
        """Note how many *jobs* a claim has brought that *wanted* so many of different keys.

        Where many of these wait for their turn, and few for one of its *slots*, there may be keys that nobody
        has behind what was read.  A worker with twice as many as it can run leaves them to others.
        """
        now = time.monotonic()
        if self.look_behind and not jobs:
            self._in_vain_at = now
        lacks_keys = self._buffer.in_sequence > 0 and busy + len(self._buffer) < 2 * slots
        self.look_behind = jobs >= wanted and lacks_keys and now - self._in_vain_at >= PATIENCE

    def admit(self, jobs: Iterable[ClaimedJob]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Divide newly claimed jobs, best first, into those that may begin and those that have to wait.

        That is for the turn of their key, or without one for a permit.
        """
        begin, wait = list[ClaimedJob](), list[ClaimedJob]()
        for job in jobs:
            if job.key is None:
                (wait if job.ahead else begin).append(job)
            elif self._buffer.has_line(key := (job.queue, job.key)):
                wait.append(job)
            else:
                leading = Fence(job.id, job.attempt)
                self._leaders[leading] = _Line(key, self._buffer.open_line(key), leading)
                begin.append(job)
        return begin, wait

    def hand_on(self, giver: Fence) -> None:
        """Let the next of its key begin, for one that has completed, if nobody has to wait for its end."""
        line = self._leaders.get(giver)
        if line is not None and line.waiting:
            following = line.waiting[-1][FENCE]
            if self._bundles.share(giver.job_id, following.job_id):
                self._go_on(line)
                self._permits.follow(giver, following)

    def dropped(self, fences: Iterable[Fence]) -> None:
        """Go on behind attempts that are not this worker's any more: what became of them is written."""
        for fence in fences:
            line = self._leaders.pop(fence, None)
            if line is None:
                # It may have had a key of which there was no other.
                self.let_go = True
            elif line.leading != fence:
                # It has handed its turn on.
                continue
            elif line.waiting:
                self._go_on(line)
                self._buffer.wake()
            else:
                self._buffer.end_line(line.key)
                self.let_go = True

    def _go_on(self, line: _Line) -> None:
        line.leading = self._buffer.go_on(line.waiting)
        self._leaders[line.leading] = line


class _Line(msgspec.Struct):
    """The jobs of one key that are here: the one that leads it, and those that wait in the buffer."""

    key: QueueKey
    waiting: list[Entry]
    leading: Fence
