"""What an adapter is asked to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a verb has to do; a field that a verb has no use for is ignored.

    *jobs* from number *first* on, each with *payload* bytes of padding, for the handler *kind*: ``noop``,
    ``ms`` (sleeps a millisecond) or ``sync`` (a plain function).  *delay* makes them due later, in seconds.
    *queues* is how many queues the worker works on; jobs go to the first.  *priorities* are spread evenly.
    *clients* insert at once, each an object of its own that makes *calls* at once over as many connections
    (0: one, over the pool that the peer has otherwise), resting between *gap_from* and *gap_to* seconds.
    *rate* (jobs per second) turns the bulk enqueue into a stream of calls with a *chunk* of jobs each, or
    more where it is late.
    *slots* 0 is the setting with which the peer is fastest.  *limit* is of the queue, *keys* are spread over
    the jobs with a limit of one each, *in_a_row* jobs of a key before the next key has its turn.  With
    *steps* each job is a durable run of so many steps that do nothing; before its last step it may *wait*,
    for its ``signal`` or until the moment *wake_at* (seconds since 1970).
    """

    jobs: int = 0
    first: int = 0
    payload: int = 50
    kind: str = "noop"
    delay: float = 0.0
    queues: int = 1
    priorities: int = 1
    clients: int = 1
    calls: int = 0
    gap_from: float = 0.0
    gap_to: float = 0.0
    chunk: int = 0
    rate: float = 0.0
    slots: int = 0
    limit: int = 0
    keys: int = 0
    in_a_row: int = 1
    latency: bool = False
    steps: int = 0
    wait: str = ""
    wake_at: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Load:
        """Return the load that one JSON object describes."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    @property
    def due_in(self) -> timedelta | None:
        """The delay as a timedelta, None for a job that is due at once."""
        return timedelta(seconds=self.delay) if self.delay else None

    def key(self, number: int) -> int:
        """Return which of the keys a job has."""
        return number // self.in_a_row % self.keys

    def connections(self, usual: int) -> int:
        """Return how many connections a client's pool may have; *usual* is what the peer is fastest with."""
        return self.calls or usual

    def numbers(self) -> range:
        """Return the numbers of the jobs."""
        return range(self.first, self.first + self.jobs)

    def marks(self) -> range:
        """Return all that is noted in the end: the number of each job, or one for each step of each run."""
        each = max(1, self.steps)
        return range(self.first * each, (self.first + self.jobs) * each)

    def padding(self) -> str:
        """Return what fills a payload up."""
        return "x" * self.payload

    def batches(self, most: int) -> Iterator[range]:
        """Cut the jobs into batches: of *chunk* where that was asked for, else of *most*."""
        step = self.chunk or most or self.jobs or 1
        end = self.first + self.jobs
        for start in range(self.first, end, step):
            yield range(start, min(start + step, end))

    def due(self, done: int, seconds: float) -> range:
        """Return what a stream sends next that has sent *done* jobs in so many seconds.

        Whoever is late sends all that is due in one call, which costs less for each job.
        """
        start = self.first + done
        late = int(seconds * self.rate) - done
        return range(start, start + min(max(self.chunk, late), self.jobs - done))
