"""The jobs of one enqueue on their way into a COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from time import monotonic

from holdfast.model.job import NewJob

# Below this many, one statement is as quick as COPY with its own.
COPY_FROM = 500
# How many jobs are read while the database takes in a thousand others, and how many at most wait for it.
READ_BETWEEN = 2047
BLOCK = 20_000
# What a COPY takes in has to be in before the connection's patience for one command ends.
BLOCK_CHARACTERS = 128 * 1024 * 1024
# Where so many take longer to read, in seconds, a transaction would stay open for them too long.
LONGEST_READ = 0.1


class NotRead(Exception):
    """A COPY cannot go on before `Incoming.read` has read the rest: begin it anew then, if it still suits."""


class Incoming:
    """Jobs that may be made as they are asked for, and are then read while the database takes in others.

    That happens inside a transaction, so it ends where reading fails or is slow, and where a job comes that
    COPY cannot take: with `NotRead`, and whatever was read is kept.
    """

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self._source, self._jobs, self._given = iter(jobs), list[NewJob](), 0
        self._failure: Exception | None = None
        self._fits, self._is_whole, self._is_slow = True, False, False

    @property
    def pays(self) -> bool:
        """True where COPY can take what has been read so far, and is the quicker way."""
        return self._fits and len(self._jobs) >= COPY_FROM

    @property
    def is_slow(self) -> bool:
        """True where reading has kept a COPY waiting for too long."""
        return self._is_slow

    def read(self, most: int | None = None) -> list[NewJob]:
        """Read *most* jobs more, all where it is None, and return all so far; raises what reading raises."""
        if self._failure is not None:
            raise self._failure
        new = list(islice(self._source, most))
        self._jobs += new
        self._fits = self._fits and all(map(_fits, new))
        self._is_whole, self._is_slow = most is None or len(new) < most, False
        return self._jobs

    def read_on(self) -> None:
        """Read a part of the rest, where little waits; how that went is for `blocks` to say."""
        waiting = len(self._jobs) - self._given
        if self._is_whole or self._is_slow or self._failure is not None or waiting >= BLOCK:
            return
        begun, most = monotonic(), 1
        # One that is slow is found out by its first jobs.
        while not (self._is_whole or self._is_slow) and most <= READ_BETWEEN:
            # What the caller's own code raises must not end up in a driver that is in the middle of a COPY.
            try:
                self.read(most)
            except Exception as error:
                self._failure = error
                return
            self._is_slow = monotonic() - begun > LONGEST_READ
            most *= 2

    def blocks(self) -> Iterator[list[NewJob]]:
        """Give all jobs, block by block, from the first on; raises `NotRead`."""
        self._given = 0
        while True:
            if self._given == len(self._jobs):
                self.read_on()
            if self._failure is not None or self._is_slow or not self._fits:
                raise NotRead
            block = _first_of(self._jobs[self._given : self._given + BLOCK])
            if not block:
                return
            self._given += len(block)
            yield block


def _first_of(block: list[NewJob]) -> list[NewJob]:
    """Return as many of the first jobs as go in at once; at least one."""
    sizes = [len(job.args) for job in block]
    if sum(sizes) <= BLOCK_CHARACTERS:
        return block
    fitting = sum(1 for size in accumulate(sizes) if size <= BLOCK_CHARACTERS)
    return block[: max(1, fitting)]


def _fits(job: NewJob) -> bool:
    # A unique key or a placement needs the slower way.
    return job.unique_key is None and job.placement is None
