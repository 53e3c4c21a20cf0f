"""Which runner gets which job: labels, queues, kinds, pins, slots and the capacity for single queues."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Route:
    """A shape that jobs have; *limited* says that its queue has a limit or concurrency keys."""

    id: int
    queue: str
    kind: str
    labels: frozenset[str]
    runner: str | None
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """An available job; the smaller *place*, the longer it has waited among those of its priority.

    Of its concurrency *key* at most *key_room* jobs may be taken.
    """

    job_id: int
    queue: str
    kind: str
    priority: int
    place: int
    labels: frozenset[str]
    runner: str | None
    key: str | None = None
    key_room: int | None = None


@dataclass(slots=True)
class Taker:
    """A runner that wants up to *free* jobs, of a queue in *left* at most so many."""

    worker_id: int
    name: str
    labels: frozenset[str]
    kinds: frozenset[str]
    queues: frozenset[str]
    free: int
    left: dict[str, int] = field(default_factory=dict)


def fits(job: Candidate | Route, taker: Taker) -> bool:
    """Return whether *taker* is a runner for *job*, whatever room it has."""
    return (
        job.queue in taker.queues
        and job.kind in taker.kinds
        and job.labels <= taker.labels
        and job.runner in (None, taker.name)
    )


def has_room(job: Candidate, taker: Taker) -> bool:
    """Return whether *taker* can hold one more job of the queue of *job*."""
    return taker.free > 0 and taker.left.get(job.queue, 1) > 0


def take(job: Candidate, taker: Taker) -> None:
    """Count *job* among what *taker* holds."""
    taker.free -= 1
    if job.queue in taker.left:
        taker.left[job.queue] -= 1


def match(
    candidates: Iterable[Candidate], takers: Sequence[Taker], room: int | None = None
) -> list[tuple[Candidate, Taker]]:
    """Return who gets what, at most *room* pairs; *takers* are counted down.

    Jobs go by priority, then by place.  A job goes to the runner with the fewest labels that it does not ask
    for, so that a rare machine stays free for what only it can do; among equals, runners take turns.
    """
    pairs: list[tuple[Candidate, Taker]] = []
    line, keys = _Line(takers), Counter[tuple[str, str | None]]()
    for job in sorted(candidates, key=lambda job: (job.priority, job.place)):
        if room is not None and len(pairs) >= room:
            break
        if job.key_room is not None and keys[job.queue, job.key] >= job.key_room:
            continue
        taker = line.next_for(job)
        if taker is not None:
            keys[job.queue, job.key] += 1
            take(job, taker)
            pairs.append((job, taker))
    return pairs


class _Line:
    """The runners that wait, those that are alike in a line of their own."""

    def __init__(self, takers: Sequence[Taker]) -> None:
        alike: dict[tuple[frozenset[str], frozenset[str], frozenset[str]], deque[Taker]] = {}
        for taker in takers:
            alike.setdefault((taker.labels, taker.kinds, taker.queues), deque()).append(taker)
        self._groups = sorted(alike.values(), key=lambda group: len(group[0].labels))
        self._named: dict[str, list[Taker]] = {}
        for taker in takers:
            self._named.setdefault(taker.name, []).append(taker)
        self._fitting: dict[tuple[str, str, frozenset[str]], list[deque[Taker]]] = {}

    def next_for(self, job: Candidate) -> Taker | None:
        """Return whose turn it is, or None where nobody fits who has room."""
        if job.runner is not None:
            named = self._named.get(job.runner, [])
            return next((taker for taker in named if fits(job, taker) and has_room(job, taker)), None)
        shape = (job.queue, job.kind, job.labels)
        if shape not in self._fitting:
            self._fitting[shape] = [group for group in self._groups if group and fits(job, group[0])]
        return next((taker for group in self._fitting[shape] if (taker := _turn(job, group))), None)


def _turn(job: Candidate, group: deque[Taker]) -> Taker | None:
    # Only the room for this queue may be missing where slots are free, so whoever is full leaves the line.
    for _ in range(len(group)):
        taker = group.popleft()
        if taker.free <= 0:
            continue
        group.append(taker)
        if has_room(job, taker):
            return taker
    return None
