"""The one heartbeat: says what this runner holds, and does what the answer asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, ServerRefused, ServerUnavailable
from holdfast.runners.agent.bench import Bench
from holdfast.runners.agent.messages import Fence, Held, Registered, SyncAnswer
from holdfast.runners.agent.registrar import Registrar
from holdfast.runners.agent.roster import Roster
from holdfast.runners.agent.stages import ENDED
from holdfast.runtime.outage import Outage
from holdfast.runtime.service import Service

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# So many requests may be under way: one that is held back, and one that tells the news.
MOST = 2
# A request that has no answer for so long is being held back, in seconds: only then is it overtaken.
HELD_BACK = 0.1
# Where the newest has had none for so long, in seconds, the oldest is given up for one that tells the news:
# of a service of several processes another one holds it, and hears of no newer request.
GIVEN_UP = 1.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request under way: *said* is what it lists, *told* the states of that."""

    task: asyncio.Task[SyncAnswer]
    said: Sequence[Held]
    told: Mapping[Fence, str]
    began: float


class Sync(Service):
    """Syncs again and again, at once where there is news.

    A request that the server holds back is left alone when news come: the next one tells them, and has the
    server let go of the older one, or is given up for another where it does not.  *failed* is set, with the
    *failure*, where the server does not want this runner.
    """

    name = "sync"

    def __init__(self, bench: Bench, roster: Roster, registrar: Registrar) -> None:
        super().__init__(bench.events)
        self._bench, self._roster, self._registrar = bench, roster, registrar
        self.failed = asyncio.Event()
        self.failure: HoldfastError | None = None
        self.leaving = self.drained = False
        self._news = asyncio.Event()
        self._flying: list[Exchange] = []
        self._outage, self._pause = Outage(), FIRST_PAUSE
        self._contact_at = self._heard_at = time.monotonic()
        bench.changed = self._news.set
        bench.in_contact, bench.silence = lambda: self.in_contact, lambda: self.silence

    @property
    def in_contact(self) -> bool:
        """True unless the last request came to nothing."""
        return self._pause == FIRST_PAUSE

    @property
    def silence(self) -> float:
        """For how many seconds the server may have taken this runner for lost."""
        return time.monotonic() - self._heard_at

    @property
    def free(self) -> int:
        """How many assignments may be begun."""
        config = self._bench.config
        if self.leaving or self._bench.is_resting or (config.once and self._roster.begun):
            return 0
        return min(1 if config.once else config.slots, config.slots - self._roster.busy)

    async def stop(self) -> None:
        """Stop, and let go of the requests under way."""
        await super().stop()
        await self._land()

    async def _land(self) -> None:
        while self._flying:
            await self._give_up(self._flying.pop())

    async def _give_up(self, exchange: Exchange) -> None:
        exchange.task.cancel()
        self._roster.untold(exchange.said)
        await asyncio.gather(exchange.task, return_exceptions=True)

    def leave(self) -> None:
        """Take nothing new from now on, and say so."""
        self.leaving = True
        self._news.set()

    async def turn(self) -> float:
        """Tell the news, if there are any, or take the next answer; answers when to go on."""
        if len(self._flying) == MOST and self._news.is_set() and self._held_back_for >= GIVEN_UP:
            await self._give_up(self._flying.pop(0))
        if not self._flying or (self._news.is_set() and len(self._flying) < MOST):
            self._launch()
        await self._something()
        for exchange in [one for one in self._flying if one.task.done()]:
            self._flying.remove(exchange)
            await self._settle(exchange)
        return 0.0

    def _launch(self) -> None:
        self._news.clear()
        held = self._roster.held()
        request = self._bench.connection.sync(
            next(self._roster.numbers),
            held,
            free=self.free,
            wait=self._bench.intervals.sync_wait,
            draining=self.leaving,
        )
        told = {Fence(one.job, one.attempt): one.state for one in held}
        self._flying.append(Exchange(asyncio.create_task(request), held, told, time.monotonic()))

    @property
    def _held_back_for(self) -> float:
        """For how many seconds the newest request has had no answer."""
        return time.monotonic() - self._flying[-1].began

    async def _something(self) -> None:
        """Wait for an answer, for news once they may be told, or until nobody hears us any more."""
        waited: set[asyncio.Future[Any]] = {one.task for one in self._flying}
        limits = [left for left in (self._bench.intervals.lost_after - self.silence,) if left > 0]
        patience = HELD_BACK if len(self._flying) < MOST else GIVEN_UP
        young = patience - self._held_back_for
        news = asyncio.ensure_future(self._news.wait())
        if young <= 0:
            waited.add(news)
        else:
            limits.append(young)
        try:
            await asyncio.wait(waited, timeout=min(limits, default=None), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if self.silence >= self._bench.intervals.lost_after:
            self._lose()

    async def _settle(self, exchange: Exchange) -> None:
        try:
            answer = exchange.task.result()
        except ServerUnavailable as error:
            self._roster.untold(exchange.said)
            # Another one is under way, and will tell whether the server is there.
            if not self._flying:
                await self._unreachable(error)
            return
        except ServerRefused as error:
            self._roster.untold(exchange.said)
            ends = [fence for fence, state in exchange.told.items() if state == ENDED]
            if ends and error.is_about_body:
                # One end that cannot be taken so must not keep the others, and what runs, from the server.
                self.events.emit("sync.shortened", error=error, count=len(ends))
                self._roster.reporter.tell_alone(ends)
            else:
                await self._refused(error)
            return
        self._reached(exchange.began)
        self.heed(answer)
        for truth in answer.refused:
            self.events.emit("sync.refused", truth=truth)
        self._roster.apply(answer.hold, exchange.told, self.free)

    def _reached(self, began: float) -> None:
        if not self.in_contact:
            self.events.emit("server.reached", seconds=time.monotonic() - self._contact_at)
        self._heard_at = max(self._heard_at, began)
        self._contact_at, self._pause = time.monotonic(), FIRST_PAUSE
        self._outage.ended()

    def heed(self, answer: Registered | SyncAnswer) -> None:
        """Keep to the intervals of an answer, and notice whether an operator drains this runner."""
        self._bench.intervals = answer.intervals
        if answer.draining and not self.drained:
            self.events.emit("runner.drained")
        if self.drained and not answer.draining:
            self.events.emit("runner.undrained")
        self.drained = answer.draining

    async def _unreachable(self, error: ServerUnavailable) -> None:
        if error.is_down:
            # Where nobody can hear runners, nobody takes from them either.
            self._heard_at = time.monotonic()
        failures = self._outage.failed()
        if failures is not None:
            self.events.emit("server.unreachable", error=error, failures=failures, retry_in=self._pause)
        # Who may be silent for a short while only has to ask often: a bad line is not the end of it.
        longest = max(2 * FIRST_PAUSE, min(LONGEST_PAUSE, self._bench.intervals.sync_every))
        pause, self._pause = self._pause, min(longest, self._pause * 2)
        # What happens meanwhile must not cut this pause short.
        left = max(0.0, self._bench.intervals.lost_after - self.silence)
        await asyncio.sleep(min(pause, left))
        if left <= pause:
            self._lose()
            await asyncio.sleep(pause - left)

    def _lose(self) -> None:
        """Another runner may have what this one holds: nobody has heard of us for too long."""
        self._roster.lose()

    async def _refused(self, error: ServerRefused) -> None:
        """Register anew where the token is not known any more; give up where that is not wanted."""
        try:
            if not error.is_about_token or error.is_superseded:
                raise error
            # Whatever is under way speaks for the term before.
            await self._land()
            self.heed(await self._registrar.register())
        except ServerUnavailable as unavailable:
            await self._unreachable(unavailable)
        except ServerRefused as refused:
            self.events.emit("runner.refused", error=refused)
            if refused.is_superseded:
                self._roster.lose_all()
            self.failure = refused
            self.failed.set()
            await asyncio.sleep(LONGEST_PAUSE)
