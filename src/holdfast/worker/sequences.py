"""Jobs that share a concurrency key and are here at once: each begins when the one before it has ended."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import Fence
from holdfast.worker.buffer import Buffer, KeyLine, line_of
from holdfast.worker.bundles import Bundles
from holdfast.worker.permits import Permits


class Sequences:
    """Whose turn it is of each key of which this worker has claimed several jobs.

    The one that leads its key is in the *buffer* like any other job, and runs.  The next leads as soon as it
    has completed, if both stand in one bundle: then both are told by one clock, and what is recorded of them
    never overlaps, though the first is not written yet.  Else the next has to wait until the database knows
    what became of the one before it.
    """

    def __init__(self, buffer: Buffer, permits: Permits, bundles: Bundles) -> None:
        self._buffer, self._permits, self._bundles = buffer, permits, bundles
        self._leading: dict[KeyLine, Fence] = {}
        self._lines: dict[Fence, KeyLine] = {}
        # Whether a key that leads to nobody here was let go since this was last set.
        self.let_go = False

    def admit(self, jobs: Iterable[ClaimedJob]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Divide newly claimed jobs, best first, into those that may begin and those that have to wait.

        That is for the turn of their key, or without one for a permit.
        """
        begin, wait = list[ClaimedJob](), list[ClaimedJob]()
        for job in jobs:
            line = line_of(job)
            if line is None:
                (wait if job.ahead else begin).append(job)
            elif line in self._leading:
                wait.append(job)
            else:
                self._lead(line, Fence(job.id, job.attempt))
                begin.append(job)
        return begin, wait

    def hand_on(self, giver: Fence) -> None:
        """Let the next of its key begin, for one that has completed, if nobody has to wait for its end."""
        line = self._lines.get(giver)
        following = None if line is None else self._buffer.next_of(line)
        if line is None or following is None or not self._bundles.share(giver.job_id, following.id):
            return
        self._permits.follow(giver, self._go_on(line))

    def dropped(self, fences: Iterable[Fence]) -> None:
        """Go on behind attempts that are not this worker's any more: what became of them is written."""
        for fence in fences:
            line = self._lines.pop(fence, None)
            if line is None:
                # It may have had a key of which there was no other.
                self.let_go = True
            elif self._leading.get(line) != fence:
                # It has handed its turn on.
                continue
            elif self._buffer.next_of(line) is not None:
                self._go_on(line)
                self._buffer.wake()
            else:
                del self._leading[line]
                self.let_go = True

    def _go_on(self, line: KeyLine) -> Fence:
        heir = self._buffer.go_on(line)
        self._lead(line, heir)
        return heir

    def _lead(self, line: KeyLine, fence: Fence) -> None:
        self._leading[line], self._lines[fence] = fence, line
