"""The claimed jobs that no slot has taken yet: best priority first, then oldest."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import chain
from operator import itemgetter
from typing import Final

from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import Fence

# In the order in which entries are sorted, the best last.  A plain tuple: one is made for every job.
Entry = tuple[int, int, Fence, float, ClaimedJob]
# Negated, like the place behind it: of both less is better.
PRIORITY: Final = 0
FENCE: Final = 2
# When it was put here, by the monotonic clock.
SINCE: Final = 3
JOB: Final = 4
# Better than every priority, which are none above 0 here.
FAVOURED = 1
# A queue, and a concurrency key of which several jobs are here.
QueueKey = tuple[str, str]


class Buffer:
    """A list in order, the best job last, that slots wait on.

    Beside it, jobs claimed ahead of a permit of their limited queue: no slot gets them before `permit` or
    `hand_on` have given them one.  And those ahead of the turn of their key, each in the line of its key:
    none before `go_on` has come to it.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._ahead: dict[str, list[Entry]] = {}
        self._lines: dict[QueueKey, list[Entry]] = {}
        # How many of them wait for the turn of their key.
        self.in_sequence = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._hunger, self._counted_at = 0.0, time.monotonic()
        # Nothing that waits here was put here before this.
        self._oldest = self._counted_at

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """True where nothing waits here, with a permit or without."""
        return not (self._entries or self.in_sequence or self.ahead)

    @property
    def ahead(self) -> int:
        """How many jobs wait here for a permit."""
        return sum(map(len, self._ahead.values())) if self._ahead else 0

    def ahead_of(self, queue: str) -> int:
        """Return how many jobs of one queue wait here for a permit."""
        return len(self._ahead.get(queue, ()))

    def put_ahead(self, jobs: Iterable[ClaimedJob]) -> list[Fence]:
        """Add jobs that have no permit yet, or wait for the turn of their key; answers their attempts."""
        added = self._entered(jobs)
        for entry in added:
            job = entry[JOB]
            if job.key is None:
                insort(self._ahead.setdefault(job.queue, []), entry)
            else:
                insort(self._lines[job.queue, job.key], entry)
                self.in_sequence += 1
        return [entry[FENCE] for entry in added]

    def has_line(self, key: QueueKey) -> bool:
        """True where a key has a line, though nobody may wait in it."""
        return key in self._lines

    def open_line(self, key: QueueKey) -> list[Entry]:
        """Make a line of those that wait for the turn of a key, the best last: one list until `end_line`."""
        line = self._lines[key] = []
        return line

    def end_line(self, key: QueueKey) -> None:
        """Forget the line of a key, in which nobody waits."""
        del self._lines[key]

    def in_line_of(self, queue: str) -> list[tuple[str, int]]:
        """Return the keys of a queue of which jobs wait here for their turn, with their best priority."""
        return [
            (key, -entries[-1][PRIORITY])
            for (its_queue, key), entries in self._lines.items()
            if entries and its_queue == queue
        ]

    def go_on(self, line: list[Entry]) -> Fence:
        """Give the turn of a key to the best in its line, and return that; this wakes no slot."""
        entry = line.pop()
        self.in_sequence -= 1
        self._enter(entry)
        return entry[FENCE]

    @property
    def waiting(self) -> int:
        """How many jobs wait here without need of a permit: none where all wait for the turn of their key."""
        return len(self._entries) and len(self._entries) + self.in_sequence

    def hand_on(self, queue: str, idle: int) -> ClaimedJob | None:
        """Give the permit of a job that has ended to the best that waits for one, and return that.

        None also where others are next to run in each of *idle* slots: a permit is not kept unused.  No slot
        is woken: the one whose job has ended goes on.
        """
        entries = self._ahead.get(queue)
        if not entries or (len(self._entries) >= idle and self._entries[-1] > entries[-1]):
            return None
        entry = entries.pop()
        self._enter(entry)
        return entry[JOB]

    def _enter(self, entry: Entry) -> None:
        if self._entries and self._entries[-1] > entry:
            insort(self._entries, entry)
        else:
            self._entries.append(entry)

    def permit(self, job: ClaimedJob, *, favoured: bool = False) -> bool:
        """Note that the database has given a job a permit; False: it does not wait here for one any more."""
        if not self.remove(job.id, job.attempt, ahead=True):
            return False
        self.put([job], favoured=favoured)
        return True

    def put(self, jobs: Iterable[ClaimedJob], *, favoured: bool = False) -> list[Fence]:
        """Add jobs, where they are *favoured* before all others, and wake as many waiting slots.

        Answers the attempts of these jobs.
        """
        added = self._entered(jobs)
        self._entries += [(FAVOURED, *entry[1:]) for entry in added] if favoured else added
        # What is in order already and what a claim brings are merged as they are: quicker than a heap.
        self._entries.sort()
        self.wake(len(self._entries))
        return [entry[FENCE] for entry in added]

    def _entered(self, jobs: Iterable[ClaimedJob]) -> list[Entry]:
        now = time.monotonic()
        if self.is_empty:
            self._oldest = now
        return [(-job.priority, -job.place, Fence(job.id, job.attempt), now, job) for job in jobs]

    def pop(self) -> Entry | None:
        """Take the best job; None: there is none."""
        return self._entries.pop() if self._entries else None

    async def take(self) -> Entry:
        """Take the best job, waiting for one."""
        while not self._entries:
            waiter = asyncio.get_running_loop().create_future()
            self.hunger(time.monotonic())
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # A wake-up that came with the cancellation belongs to another slot.
                if waiter.done() and not waiter.cancelled():
                    self.wake(1)
                elif waiter in self._waiters:
                    self.hunger(time.monotonic())
                    self._waiters.remove(waiter)
                raise
        return self._entries.pop()

    @property
    def worst(self) -> int:
        """The worst priority that waits here, 0 where nothing could be better than all of it."""
        here = [-entries[0][PRIORITY] for entries in self._all() if entries]
        return max([0, *here])

    def better_than(self, priority: int) -> int:
        """Return how many jobs that a slot may take are more urgent than this."""
        return len(self._entries) - bisect_right(self._entries, -priority, key=itemgetter(PRIORITY))

    @property
    def has_favoured(self) -> bool:
        """True while a favoured job waits here."""
        return bool(self._entries) and self._entries[-1][PRIORITY] == FAVOURED

    def oldest(self, default: float) -> float:
        """Return a moment before which nothing was put here that waits still, by the monotonic clock."""
        return default if self.is_empty else self._oldest

    def hunger(self, now: float) -> float:
        """Return how many seconds slots have waited for jobs so far, all of them added up."""
        self._hunger += len(self._waiters) * (now - self._counted_at)
        self._counted_at = now
        return self._hunger

    def give_up(self, older_than: float = 0.0) -> list[ClaimedJob]:
        """Remove and return what has waited at least *older_than* seconds."""
        limit = time.monotonic() - older_than
        if self._oldest > limit:
            return []
        given = self._without(lambda entry: entry[SINCE] <= limit)
        self._oldest = min((entry[SINCE] for entry in chain.from_iterable(self._all())), default=limit)
        return given

    def give_up_of(self, queues: Set[str]) -> list[ClaimedJob]:
        """Remove and return what came from one of *queues*."""
        return self._without(lambda entry: entry[JOB].queue in queues)

    def remove(self, job_id: int, attempt: int, *, ahead: bool = False) -> bool:
        """Remove one job, with *ahead* only one that waits for a permit; False: it is not here."""

        def is_it(entry: Entry) -> bool:
            return entry[FENCE] == (job_id, attempt)

        return bool(_take_out(self._ahead.values(), is_it) or (not ahead and self._without(is_it)))

    def _without(self, unwanted: Callable[[Entry], bool]) -> list[ClaimedJob]:
        from_lines = _take_out(self._lines.values(), unwanted)
        self.in_sequence -= len(from_lines)
        return _take_out([self._entries], unwanted) + _take_out(self._ahead.values(), unwanted) + from_lines

    def _all(self) -> Iterator[list[Entry]]:
        return chain([self._entries], self._ahead.values(), self._lines.values())

    def wake(self, most: int = 1) -> None:
        """Wake slots that wait, as many as there are jobs that have come, by `go_on` or otherwise."""
        self.hunger(time.monotonic())
        while most > 0 and self._waiters:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


def _take_out(lists: Iterable[list[Entry]], unwanted: Callable[[Entry], bool]) -> list[ClaimedJob]:
    """Take what is unwanted out of each of these, best first; in place, for others may have a list too."""
    taken: list[ClaimedJob] = []
    for entries in lists:
        if going := [entry[JOB] for entry in reversed(entries) if unwanted(entry)]:
            taken += going
            entries[:] = [entry for entry in entries if not unwanted(entry)]
    return taken
