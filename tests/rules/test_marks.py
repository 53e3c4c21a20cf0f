"""No available job is ever passed over for longer than one look, whatever commits, locks and rolls back."""

from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.rules import marks
from holdfast.rules.marks import FIRST_FRESH, LINES, PATIENCE, Horizon, Marks, from_the_start, line_of

QUEUE = "q"
QUEUES = (QUEUE, "r")
RETURNED = -(2**62)


# Queue, priority, place.
Job = tuple[str, int, int]


@dataclass
class Transaction:
    """A transaction of the model: what it has put in, and what it has locked."""

    made: list[Job] = field(default_factory=list)
    locked: list[Job] = field(default_factory=list)


@dataclass
class World:
    """A database as the marks see it: jobs are visible once their transaction commits."""

    number: int = 1
    sequence: int = 0
    running: dict[int, Transaction] = field(default_factory=dict)
    available: set[Job] = field(default_factory=set)
    noted: list[dict[str, list[int]]] = field(default_factory=list)

    def begin(self) -> Transaction:
        """Begin a transaction: it gets its number before any place."""
        transaction = self.running[self.number] = Transaction()
        self.number += 1
        return transaction

    def late(self, queue: str, priority: int, returned: bool) -> None:
        """Put a job in, which nobody sees before the transaction ends."""
        self.begin()
        self.more(len(self.running) - 1, queue, priority, returned)

    def more(self, choice: int, queue: str, priority: int, returned: bool) -> None:
        """Put a job in by a transaction that has begun."""
        if self.running:
            self.sequence += 1
            place = self.sequence + (RETURNED if returned else 0)
            self._running(choice).made.append((queue, priority, place))

    def _running(self, choice: int) -> Transaction:
        return self.running[list(self.running)[choice % len(self.running)]]

    def fresh(self, queue: str, priority: int) -> None:
        """Put a job in and commit at once."""
        self.late(queue, priority, False)
        self.end(len(self.running) - 1, commits=True)

    def lock(self, choice: int) -> None:
        """Lock an available job, as somebody does who may cancel it."""
        free = sorted(self.available - self.locked())
        if free:
            self.begin().locked.append(free[choice % len(free)])

    def locked(self) -> set[Job]:
        """Everything that somebody has locked."""
        return {job for one in self.running.values() for job in one.locked}

    def end(self, choice: int, commits: bool) -> None:
        """Commit or roll back: what was locked goes for good, or stays available."""
        if self.running:
            number = list(self.running)[choice % len(self.running)]
            transaction = self.running.pop(number)
            if commits:
                self.available |= set(transaction.made)
                self.available -= set(transaction.locked)

    def note(self, marks: Marks) -> None:
        """Note what a worker can prove."""
        if marks.proven is not None:
            self.noted.append(marks.proven)

    def claim(self, marks: Marks, after: list[int], limit: int) -> None:
        """Claim what is visible and not locked, in order, behind the places given."""
        seen = sorted(self.available - self.locked())
        taken = [job for job in seen if job[-1] > after[at(job)]][:limit]
        self.available -= set(taken)
        for job in taken:
            marks.taken(*job)

    def look(self, marks: Marks) -> None:
        """Look behind and claim all that can be had."""
        after, until = marks.settled(QUEUES), marks.candidate(QUEUES)
        left: list[int | None] = [None for _ in after]
        for job in sorted(self.available, reverse=True):
            if after[at(job)] < job[-1] <= until[at(job)]:
                left[at(job)] = job[-1]
        marks.look(QUEUES, Horizon(self.number, frozenset(self.running), left))
        self.claim(marks, marks.settled(QUEUES), 10**6)


def at(job: Job) -> int:
    """Where the line of a job stands among those of all queues."""
    queue, priority, place = job
    return QUEUES.index(queue) * LINES + line_of(priority, place)


few, queue, priority = st.integers(0, 2), st.sampled_from(QUEUES), st.integers(4, 5)
events = st.one_of(
    st.tuples(st.just("fresh"), queue, priority),
    st.tuples(st.just("late"), queue, priority, st.booleans()),
    st.tuples(st.just("more"), few, queue, priority, st.booleans()),
    st.tuples(st.just("lock"), few),
    st.tuples(st.just("end"), few, st.booleans()),
    st.tuples(st.just("hurry"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("look"), st.integers(0, 1)),
    st.tuples(st.just("note"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
)


# A worker passes what a transaction may still bring, notes what it has proven, and another one begins.
OWED: list[tuple[object, ...]] = [
    ("late", QUEUE, 5, False),
    ("fresh", QUEUE, 5),
    *[("look", 0)] * (2 * PATIENCE + 1),
    ("note", 0),
    ("restart", 1),
    ("end", 0, True),
    ("look", 1),
]


# What is passed brings a job into a queue that nobody knew by then, behind one that was taken there.
UNKNOWN: list[tuple[object, ...]] = [
    ("late", QUEUE, 5, False),
    ("fresh", QUEUE, 5),
    *[("look", 0)] * (2 * PATIENCE + 1),
    ("more", 0, QUEUES[1], 5, False),
    ("fresh", QUEUES[1], 5),
    *[("look", 0)] * (2 * PATIENCE + 1),
    ("end", 0, True),
    ("look", 0),
]


@pytest.mark.parametrize("patience", [1, PATIENCE])
@example(history=OWED)
@example(history=UNKNOWN)
@settings(max_examples=2000, deadline=None)
@given(history=st.lists(events, max_size=80))
def test_after_a_look_nothing_is_left_that_could_be_had(
    patience: int, history: list[tuple[object, ...]]
) -> None:
    """Two workers race and restart, commits come late or never; each look finds all there is to be had."""
    with patch.object(marks, "PATIENCE", patience):
        happen(history)


def happen(history: list[tuple[object, ...]]) -> None:
    """Let it all happen; fails where a look leaves something."""
    world, workers = World(), [Marks(), Marks()]
    for name, *details in history:
        match name, details:
            case "hurry", [int(who), int(limit)]:
                world.claim(workers[who], workers[who].tips(QUEUES), limit)
            case "look", [int(who)]:
                world.look(workers[who])
                assert world.available <= world.locked()
            case "note", [int(who)]:
                world.note(workers[who])
            case "restart", [int(who)]:
                # It begins where anybody who noted something had come to, itself perhaps.
                workers[who] = Marks(world.noted)
            case method, details:
                getattr(world, str(method))(*details)
    while world.running:
        world.end(0, commits=True)
    world.look(workers[0])
    assert not world.available


def settle(marks: Marks, *, running: frozenset[int] = frozenset(), looks: int = 2) -> None:
    """Look a few times at a database where these transactions run and nothing is left."""
    for _ in range(looks):
        marks.look([QUEUE], Horizon(100, running, [None] * LINES))


def test_places_settle_after_two_looks() -> None:
    """A claim that starts from the settled places then walks over nothing that it took before."""
    marks = Marks()
    marks.taken(QUEUE, 5, 70)
    assert marks.settled([QUEUE]) == from_the_start([QUEUE])
    settle(marks)
    assert marks.settled([QUEUE])[line_of(5, 70)] == 70
    assert not marks.in_doubt


def test_a_transaction_that_runs_on_holds_places_back_for_a_few_looks_only() -> None:
    """Somebody's forgotten transaction must not make every claim walk over all that was taken since."""
    marks = Marks()
    marks.taken(QUEUE, 5, 70)
    settle(marks, running=frozenset({7}), looks=PATIENCE)
    assert marks.settled([QUEUE])[line_of(5, 70)] == FIRST_FRESH
    settle(marks, running=frozenset({7}), looks=1)
    assert marks.settled([QUEUE])[line_of(5, 70)] == 70
    settle(marks, looks=1)
    assert marks.settled([QUEUE])[line_of(5, 70)] == FIRST_FRESH
    settle(marks)
    assert marks.settled([QUEUE])[line_of(5, 70)] == 70


def test_what_came_back_stands_in_a_line_of_its_own() -> None:
    """A retried job is before all fresh ones of its priority, whatever was claimed there."""
    assert line_of(3, RETURNED + 1) == line_of(3, 1) - 1
    marks = Marks()
    marks.taken(QUEUE, 3, 10)
    assert marks.tips([QUEUE])[line_of(3, RETURNED + 1)] < RETURNED


def test_what_is_owed_is_not_proven() -> None:
    """While a transaction may still bring something back, a worker has nothing to note."""
    marks = Marks()
    marks.taken(QUEUE, 5, 7)
    settle(marks)
    proven = marks.proven
    assert proven is not None
    assert proven[QUEUE][line_of(5, 7)] == 7
    marks.taken(QUEUE, 5, 9)
    settle(marks, running=frozenset([1]), looks=PATIENCE + 1)
    assert marks.proven is None
    settle(marks, looks=3)
    assert marks.proven is not None
    assert marks.proven[QUEUE][line_of(5, 9)] == 9


def test_a_worker_begins_at_the_furthest_that_was_noted() -> None:
    """Line by line; and what another release says of other lines is nothing to go by."""
    one, two = [FIRST_FRESH] * LINES, [FIRST_FRESH] * LINES
    one[3], two[3], two[5] = 8, 6, 4
    marks = Marks([{QUEUE: one}, {QUEUE: two, "other": two}, {QUEUE: [99]}])
    expected = [max(pair) for pair in zip(one, two, strict=True)]
    assert marks.settled([QUEUE]) == marks.tips([QUEUE]) == expected
    assert marks.settled(["other"]) == two
    assert not marks.in_doubt
    assert marks.settled(["unknown"]) == from_the_start(["unknown"])
