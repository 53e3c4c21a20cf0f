"""The one heartbeat: says what this runner holds, and does what the answer asks for."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from holdfast.errors import HoldfastError, ServerRefused, ServerUnavailable
from holdfast.runners.agent.execution import Bench
from holdfast.runners.agent.messages import Fence, SyncAnswer
from holdfast.runners.agent.registrar import Registrar
from holdfast.runners.agent.roster import Roster
from holdfast.runtime.outage import Outage
from holdfast.runtime.service import Service

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0

Exchange = asyncio.Task[SyncAnswer]


class Sync(Service):
    """Syncs again and again, at once where there is news.

    A request that waits for its answer is left alone when news come: the next one tells them, and has the
    server let go of the older one.  *failed* is set, with the *failure*, where the server does not want this
    runner.
    """

    name = "sync"

    def __init__(self, bench: Bench, roster: Roster, registrar: Registrar) -> None:
        super().__init__(bench.events)
        self._bench, self._roster, self._registrar = bench, roster, registrar
        self.failed = asyncio.Event()
        self.failure: HoldfastError | None = None
        self.leaving = self.drained = False
        self._older: Exchange | None = None
        self._outage, self._pause = Outage(), FIRST_PAUSE
        self._contact_at = self._heard_at = time.monotonic()
        bench.changed = self.wake
        bench.in_contact = lambda: self.in_contact

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
        if self.leaving or (config.once and self._roster.begun):
            return 0
        return min(1 if config.once else config.slots, config.slots - self._roster.busy)

    async def stop(self) -> None:
        """Stop, and let go of a request under way."""
        await super().stop()
        if self._older is not None:
            self._older.cancel()

    async def turn(self) -> float:
        """Sync once, or begin to; answers when to sync again."""
        began, free = time.monotonic(), self.free
        held = self._roster.held()
        told = {Fence(one.job, one.attempt) for one in held}
        exchange: Exchange = asyncio.create_task(
            self._bench.connection.sync(
                next(self._roster.numbers),
                held,
                free=free,
                wait=self._bench.intervals.sync_wait,
                draining=self.leaving,
            )
        )
        try:
            if not await self._answered_before_news(exchange):
                return 0.0
            answer = exchange.result()
        except ServerUnavailable as error:
            return await self._unreachable(error)
        except ServerRefused as error:
            return await self._refused(error)
        finally:
            self._let_go(exchange)
        self._reached(began)
        self._take(answer)
        self._roster.apply(answer.hold, told, free)
        return 0.0

    async def _answered_before_news(self, exchange: Exchange) -> bool:
        news = asyncio.create_task(self._woken.wait())
        try:
            while not exchange.done() and not news.done():
                left = self._bench.intervals.lost_after - self.silence
                done, _ = await asyncio.wait(
                    {exchange, news},
                    timeout=left if left > 0 else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    self._lose()
            return exchange.done()
        finally:
            news.cancel()

    def _let_go(self, exchange: Exchange) -> None:
        """Leave a request to itself that was overtaken; at most one, should the server not let it go."""
        if exchange.done():
            return
        if self._older is not None:
            self._older.cancel()
        self._older = exchange
        exchange.add_done_callback(_forget)

    def _reached(self, began: float) -> None:
        if not self.in_contact:
            self.events.emit("server.reached", seconds=time.monotonic() - self._contact_at)
        self._heard_at, self._contact_at, self._pause = began, time.monotonic(), FIRST_PAUSE
        self._outage.ended()

    def _take(self, answer: SyncAnswer) -> None:
        self._bench.intervals = answer.intervals
        if answer.draining != self.drained:
            self.drained = answer.draining
            self.events.emit("runner.drained" if answer.draining else "runner.undrained")
        for truth in answer.refused:
            self.events.emit("sync.refused", truth=truth)

    async def _unreachable(self, error: ServerUnavailable) -> float:
        if error.is_down:
            # Where nobody can hear runners, nobody takes from them either.
            self._heard_at = time.monotonic()
        failures = self._outage.failed()
        if failures is not None:
            self.events.emit("server.unreachable", error=error, failures=failures, retry_in=self._pause)
        pause, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 2)
        # What happens meanwhile must not cut this pause short.
        left = max(0.0, self._bench.intervals.lost_after - self.silence)
        await asyncio.sleep(min(pause, left))
        if left <= pause:
            self._lose()
            await asyncio.sleep(pause - left)
        return 0.0

    def _lose(self) -> None:
        """Another runner may have what this one holds: nobody has heard of us for too long."""
        self._roster.lose()

    async def _refused(self, error: ServerRefused) -> float:
        """Register anew where the token is not known any more; give up where that is not wanted."""
        try:
            if not error.is_about_token or error.is_superseded:
                raise error
            self._bench.intervals = (await self._registrar.register()).intervals
        except ServerUnavailable as unavailable:
            return await self._unreachable(unavailable)
        except ServerRefused as refused:
            self.events.emit("runner.refused", error=refused)
            if refused.is_superseded:
                self._roster.lose_all()
            self.failure = refused
            self.failed.set()
            return LONGEST_PAUSE
        return 0.0


def _forget(exchange: Exchange) -> None:
    with suppress(asyncio.CancelledError):
        exchange.exception()
