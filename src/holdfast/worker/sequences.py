"""Jobs that share a concurrency key and are here at once: each begins when the one before it has ended."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import Fence
from holdfast.worker.buffer import Buffer, Sequence, sequence_of
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
        self._leading: dict[Sequence, Fence] = {}
        self._sequences: dict[Fence, Sequence] = {}
        # Whether a key that leads to nobody here was let go since this was last set.
        self.let_go = False

    def admit(self, jobs: Iterable[ClaimedJob]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Divide newly claimed jobs, best first, into those that may begin and those that have to wait."""
        leading, waiting = list[ClaimedJob](), list[ClaimedJob]()
        for job in jobs:
            sequence = sequence_of(job)
            if sequence is not None and sequence in self._leading:
                waiting.append(job)
                continue
            if sequence is not None:
                self._lead(sequence, Fence(job.id, job.attempt))
            leading.append(job)
        return leading, waiting

    def hand_on(self, giver: Fence) -> None:
        """Let the next of its key begin, for one that has completed, if nobody has to wait for its end."""
        sequence = self._sequences.get(giver)
        following = None if sequence is None else self._buffer.next_of(sequence)
        if sequence is None or following is None or not self._bundles.share(giver.job_id, following.id):
            return
        self._permits.follow(giver, self._go_on(sequence))

    def dropped(self, fences: Iterable[Fence]) -> None:
        """Go on behind attempts that are not this worker's any more: what became of them is written."""
        for fence in fences:
            sequence = self._sequences.pop(fence, None)
            if sequence is None:
                # It may have had a key of which there was no other.
                self.let_go = True
            elif self._leading.get(sequence) != fence:
                # It has handed its turn on.
                continue
            elif self._buffer.next_of(sequence) is not None:
                self._go_on(sequence)
            else:
                del self._leading[sequence]
                self.let_go = True

    def _go_on(self, sequence: Sequence) -> Fence:
        heir = self._buffer.go_on(sequence)
        self._lead(sequence, heir)
        return heir

    def _lead(self, sequence: Sequence, fence: Fence) -> None:
        self._leading[sequence], self._sequences[fence] = fence, sequence
