"""Gives available jobs to the runners that wait for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from holdfast.client.token_operator import token_hash, token_text
from holdfast.errors import HoldfastError
from holdfast.model.runner import Assignment, Runner
from holdfast.rules.matching import Candidate, Route, Taker, fits, match
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import attempts, offers
from holdfast.store.database import Connection, Database
from holdfast.store.offers import Room

MOST_AT_ONCE = 200
# How long a wake-up that was missed is not noticed.
LONGEST_REST = 2.0
IDLE = 3600.0
# For so many runners it is remembered when it last rang.
MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Offer:
    """An assignment that was offered, and the text of its token, which is kept nowhere."""

    assignment: Assignment
    token: str


@dataclass(slots=True, eq=False)
class _Request:
    """A runner that waits for up to *want* offers until *deadline* by the loop's clock."""

    runner: Runner
    want: int
    deadline: float
    answer: asyncio.Future[list[Offer]]
    shape: Taker = field(init=False)

    def __post_init__(self) -> None:
        # Made once: a runner that waits is looked at whenever there is a job for anybody.
        runner = self.runner
        self.shape = Taker(
            *(runner.id, runner.name, runner.labels, runner.kinds, frozenset(runner.queues), self.want),
            left=runner.capacity,
        )

    def taker(self) -> Taker:
        """Return the runner as the matching sees it, to be counted down."""
        shape = self.shape
        return Taker(
            *(shape.worker_id, shape.name, shape.labels, shape.kinds, shape.queues, shape.free),
            left=dict(shape.left),
        )


class Dispatcher(Service):
    """Holds the requests of all runners of one server process and fills them, many with one transaction.

    Cost goes with jobs that are there and with shapes of jobs, not with runners that wait.
    """

    name = "dispatcher"

    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(events)
        self._database = database
        self._requests: dict[int, _Request] = {}
        self._closing = False
        # How often it has rung, and which time was the last one for all runners, and for each.
        self._rings = self._rung_all = 0
        self._rung: dict[int, int] = {}

    @property
    def rings(self) -> int:
        """How often it has rung: to be asked before a look at what a runner holds, for `offers`."""
        return self._rings

    async def offers(
        self, runner: Runner, want: int, wait: float, *, since: int | None = None
    ) -> list[Offer]:
        """Return up to *want* new offers, after up to *wait* seconds; an empty list: there was nothing.

        An older request of the same runner is answered at once, for it has only one ear; so is this one
        where a later registration waits already, or where there was news *since* so many `rings`.
        """
        waiting = self._requests.get(runner.id)
        if waiting is not None and waiting.runner.term > runner.term:
            return []
        missed = since is not None and since < max(self._rung_all, self._rung.get(runner.id, 0))
        if waiting is not None:
            _settle(waiting, [])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (0.0 if self._closing or missed else wait)
        request = self._requests[runner.id] = _Request(runner, want, deadline, loop.create_future())
        self.wake()
        try:
            return await request.answer
        finally:
            if self._requests.get(runner.id) is request:
                del self._requests[runner.id]

    @property
    def waiting(self) -> frozenset[int]:
        """The runners whose requests are held back."""
        return frozenset(self._requests)

    def ring(self, worker_id: int) -> None:
        """Answer the requests of a runner at once: there is news for it."""
        self._rings += 1
        if len(self._rung) >= MOST_REMEMBERED:
            # Whoever is about to wait asks once more than needed.
            self._rung.clear()
            self._rung_all = self._rings
        self._rung[worker_id] = self._rings
        if (request := self._requests.get(worker_id)) is not None:
            _settle(request, [])

    def notified(self, topic: str, rest: str) -> None:
        """React to a notification; see `store.listen`."""
        match topic:
            case "routed" | "queues":
                self.wake()
            case "cancel" | "drain":
                if rest.isdecimal():
                    self.ring(int(rest))
            case "reconnected":
                # Anything may have been missed.
                self._ring_all()

    def release(self) -> None:
        """Answer everybody at once, from now on."""
        self._closing = True
        self._ring_all()

    def _ring_all(self) -> None:
        self._rings += 1
        self._rung_all = self._rings
        for request in self._requests.values():
            _settle(request, [])

    async def turn(self) -> float:
        """Fill what can be filled; answer those whose time is over."""
        waiting = [request for request in self._requests.values() if not request.answer.done()]
        wanting = [request for request in waiting if request.want > 0]
        try:
            more = bool(wanting) and await self._fill(wanting)
        except HoldfastError as error:
            for request in waiting:
                if not request.answer.done():
                    request.answer.set_exception(error)
            raise
        now = asyncio.get_running_loop().time()
        for request in waiting:
            if request.deadline <= now:
                _settle(request, [])
        if more:
            return 0.0
        deadlines = [request.deadline for request in waiting if not request.answer.done()]
        return max(0.001, min(min(deadlines) - now, LONGEST_REST)) if deadlines else IDLE

    async def _fill(self, requests: Sequence[_Request]) -> bool:
        """Make offers; answer whether there may be more to make."""
        queues = {queue for request in requests for queue in request.runner.queues}
        routes = await self._database.run(offers.open_routes(sorted(queues)))
        takers = [request.shape for request in requests]
        shapes = list({(taker.labels, taker.kinds, taker.queues): taker for taker in takers}.values())
        by_name = {taker.name: taker for taker in takers}
        usable = [route for route in routes if _is_usable(route, shapes, by_name)]
        made = 0
        for queue, group in _by_way(usable).items():
            made += await self._offer(requests, group, queue)
        return made > 0

    async def _offer(self, requests: Sequence[_Request], routes: Sequence[Route], queue: str | None) -> int:
        """Make offers from *routes* in one transaction; *queue* is the one with limits that they share."""
        open_requests = [request for request in requests if not request.answer.done()]
        if not open_requests:
            return 0
        async with self._database.transaction() as connection:
            room = None
            candidates: list[Candidate] = []
            limit = min(MOST_AT_ONCE, sum(request.want for request in open_requests))
            ids = [route.id for route in routes]
            if queue is not None:
                await self._database.run(attempts.lock_limits(queue), connection)
                left = await self._database.run(offers.queue_room(queue), connection)
                room = left.room
                limit = limit if room is None else max(0, min(limit, room))
                keyed = offers.lock_keyed_heads(ids, limit, left.key_limit)
                candidates = await self._database.run(keyed, connection)
            heads = await self._database.run(offers.lock_heads(ids, limit), connection)
            candidates = candidates + heads
            made = await self._give(connection, open_requests, candidates, room)
        self._answer(open_requests, made)
        return len(made)

    async def _give(
        self,
        connection: Connection,
        requests: Sequence[_Request],
        candidates: Sequence[Candidate],
        room: int | None,
    ) -> list[Offer]:
        # First by what can be known without a lock, to know whose rows to lock; then by what they hold.
        takers = await self._likely(connection, requests, {job.queue for job in candidates})
        likely = {taker.worker_id for _, taker in match(candidates, takers, room)}
        if not likely:
            return []
        locked = await self._database.run(offers.lock_runners(list(likely)), connection)
        seen = await self._database.run(offers.runners_room(locked), connection)
        rooms = {one.worker_id: one for one in seen}
        exact = [taker for request in requests if (taker := _exact(request, rooms)) is not None]
        pairs = [(job.job_id, taker.worker_id) for job, taker in match(candidates, exact, room)]
        if not pairs:
            return []
        tokens = {pair: token_text() for pair in pairs}
        made = await self._database.run(
            offers.offer_jobs(pairs, [token_hash(tokens[pair]) for pair in pairs]), connection
        )
        return [Offer(one, tokens[one.job_id, one.worker_id]) for one in made]

    async def _likely(
        self, connection: Connection, requests: Sequence[_Request], queues: Set[str]
    ) -> list[Taker]:
        """Return the takers, with the room that they have where that differs from queue to queue.

        Else one that may hold no more of a queue would stand before one that may.
        """
        bounded = [one.runner.id for one in requests if not queues.isdisjoint(one.runner.capacity)]
        if not bounded:
            return [request.taker() for request in requests]
        seen = await self._database.run(offers.runners_room(bounded), connection)
        rooms = {one.worker_id: one for one in seen}
        exact = (
            _exact(request, rooms) if request.runner.id in rooms else request.taker() for request in requests
        )
        return [taker for taker in exact if taker is not None]

    def _answer(self, requests: Iterable[_Request], made: Sequence[Offer]) -> None:
        by_runner: dict[int, list[Offer]] = defaultdict(list)
        for offer in made:
            by_runner[offer.assignment.worker_id].append(offer)
        for request in requests:
            # Whoever has hung up meanwhile is shown them again when it comes back.
            if given := by_runner.get(request.runner.id):
                _settle(request, given)
        if made:
            self.events.emit("assignments.offered", count=len(made))


def _settle(request: _Request, offers: list[Offer]) -> None:
    if not request.answer.done():
        request.answer.set_result(offers)


def _is_usable(route: Route, shapes: Iterable[Taker], by_name: dict[str, Taker]) -> bool:
    if route.runner is not None:
        return route.runner in by_name and fits(route, by_name[route.runner])
    return any(fits(route, taker) for taker in shapes)


def _by_way(routes: Iterable[Route]) -> dict[str | None, list[Route]]:
    """Return the routes of each queue that has limits, and together those of all that have none."""
    ways: dict[str | None, list[Route]] = {}
    for route in routes:
        ways.setdefault(route.queue if route.limited else None, []).append(route)
    return ways


def _exact(request: _Request, rooms: dict[int, Room]) -> Taker | None:
    """Return the taker with the room that it really has; None for one that was superseded meanwhile."""
    room = rooms.get(request.runner.id)
    if room is None or room.term != request.runner.term:
        return None
    taker = request.taker()
    taker.free = min(taker.free, room.slots - sum(room.held.values()))
    taker.left = {queue: most - room.held.get(queue, 0) for queue, most in request.runner.capacity.items()}
    return taker
