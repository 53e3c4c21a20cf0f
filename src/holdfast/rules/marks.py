"""From where a claim may look: behind what is taken, never behind what is there.

A claim that starts at the front of its line walks over everything that was taken since the last vacuum,
which may be millions of dead index entries while somebody's forgotten transaction is open.  So a worker
remembers two places for each line (a queue, a priority, and whether its jobs are fresh or came back):

*tip*       the last place it claimed.  The next claim may start here.
*settled*   up to here nothing available is left and nothing can turn up any more.  A look behind starts here.

Between the two something may have been passed over: a job whose transaction commits later than that of a
later place, a row that somebody had locked and let go, or one that bears the mark of a lock where a claim was
in a hurry.  A claim therefore starts from *settled* whenever the last one came back short, and else every
half a second, or after twenty times what the last look took the server where that is longer.  No job that
was passed over waits longer than that.

*settled* moves by what two looks at the database say.  The first one notes the tips and the number of the
next transaction.  Once a later look sees none of the transactions running that had begun by then, every
place up to those tips is visible, for places are handed out only to transactions that have begun
(``next_place`` in the migrations).  What is available there still, for it is locked or was put back by
a rollback, holds *settled* back.  A transaction that runs on and on would hold it for ever: after a few
looks it is passed and remembered as a debt; once it has ended, *settled* goes back to where it was then.

Settled places without a debt are *proven*: they hold for every worker that knows no other kinds, whenever it
starts.  A worker notes its own in the database, and a new one begins at the furthest that were noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LINES = 20
# Before all places: of jobs that came back (below zero) and of fresh ones.
FIRST_RETURNED = -(2**63)
FIRST_FRESH = 0
BEHIND_ALL = 2**63 - 1
# How many looks a running transaction may hold the settled places back.
PATIENCE = 4

Places = list[int]


@dataclass(frozen=True, slots=True)
class Horizon:
    """What one look at the database told: *next_number* is above that of every transaction that had begun,
    *running* are those under way, *left* for each line the first place in doubt that is still available, or
    None; *server* is when the server was started, in seconds since 1970, *took* how many it looked."""

    next_number: int
    running: frozenset[int]
    left: Sequence[int | None]
    server: float = 0.0
    took: float = 0.0


@dataclass(slots=True)
class _Candidate:
    """Places that are settled once every transaction numbered below *next_number* has ended."""

    places: dict[str, Places]
    next_number: int
    looks: int = 0


def from_the_start(queues: Iterable[str]) -> Places:
    """Return the places that pass nothing over."""
    return [place for _ in queues for place in _start()]


def _start() -> Places:
    return [FIRST_RETURNED, FIRST_FRESH] * (LINES // 2)


def line_of(priority: int, place: int) -> int:
    """Return which line of its queue a job stands in."""
    return 2 * priority + (place > FIRST_FRESH)


class Marks:
    """The places of one worker; a queue from which nothing was taken yet is looked at from its start.

    *noted* are proven places of workers that knew all of its kinds.
    """

    def __init__(self, noted: Iterable[Mapping[str, Places]] = ()) -> None:
        self._settled: dict[str, Places] = {}
        for places in noted:
            for queue, lines in places.items():
                # A release that knows other lines has nothing to say here.
                if len(lines) == LINES:
                    known = self._settled.get(queue, lines)
                    self._settled[queue] = [max(pair) for pair in zip(known, lines, strict=True)]
        self._tips = _copied(self._settled)
        self._candidate: _Candidate | None = None
        self._debts: dict[int, dict[str, Places]] = {}

    def taken(self, queue: str, priority: int, place: int) -> None:
        """Note that a job was claimed there."""
        if queue not in self._tips:
            self._tips[queue], self._settled[queue] = _start(), _start()
        line, tips = line_of(priority, place), self._tips[queue]
        if place > tips[line]:
            tips[line] = place

    @property
    def in_doubt(self) -> bool:
        """True while something between settled places and tips may have been passed over."""
        return self._settled != self._tips or bool(self._debts)

    @property
    def proven(self) -> dict[str, Places] | None:
        """The settled places of all queues; None while a debt is left."""
        return None if self._debts else _copied(self._settled)

    def tips(self, queues: Sequence[str]) -> Places:
        """Return where a claim in a hurry starts."""
        return _flat(self._tips, queues)

    def settled(self, queues: Sequence[str]) -> Places:
        """Return where a claim starts that passes nothing over."""
        return _flat(self._settled, queues)

    def settled_above(self, priority: int, queues: Sequence[str]) -> Places:
        """Return the same for a claim that takes nothing but what is more urgent than *priority*."""
        places = self.settled(queues)
        return [place if n % LINES < 2 * priority else BEHIND_ALL for n, place in enumerate(places)]

    def candidate(self, queues: Sequence[str]) -> Places:
        """Return the places up to which the next look asks what is left."""
        return _flat(self._settled if self._candidate is None else self._candidate.places, queues)

    def look(self, queues: Sequence[str], horizon: Horizon) -> None:
        """Move the settled places by what a look told about the lines of *queues*."""
        if self._pay(horizon):
            self._candidate = None
        elif self._candidate is not None:
            blockers = {number for number in horizon.running if number < self._candidate.next_number}
            self._candidate.looks += 1
            if blockers and self._candidate.looks < PATIENCE:
                return
            for number in blockers:
                self._debts.setdefault(number, _copied(self._settled))
            self._settle(self._candidate.places, queues, horizon.left)
        self._candidate = _Candidate(_copied(self._tips), horizon.next_number)

    def _pay(self, horizon: Horizon) -> bool:
        """Go back behind what a transaction may have left that has ended now; True where one had."""
        ended = [number for number in self._debts if number not in horizon.running]
        for number in ended:
            owed = self._debts.pop(number)
            for queue, places in self._settled.items():
                # A queue that was not known then was settled nowhere.
                former = owed.get(queue) or _start()
                self._settled[queue] = [min(pair) for pair in zip(places, former, strict=True)]
        return bool(ended)

    def _settle(self, places: dict[str, Places], queues: Sequence[str], left: Sequence[int | None]) -> None:
        for nth, queue in enumerate(queues):
            if queue in places:
                lines = zip(places[queue], left[nth * LINES : (nth + 1) * LINES], strict=True)
                self._settled[queue] = [place if rest is None else rest - 1 for place, rest in lines]


def _copied(places: dict[str, Places]) -> dict[str, Places]:
    return {queue: list(lines) for queue, lines in places.items()}


def _flat(places: dict[str, Places], queues: Sequence[str]) -> Places:
    return [place for queue in queues for place in places.get(queue) or _start()]
