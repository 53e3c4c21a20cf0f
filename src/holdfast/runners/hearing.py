"""Hears runners: who speaks, in which term, and since when without a gap."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Self, TypeAlias

from holdfast.errors import AssignmentForeign, RunnerSuperseded, TokenInvalid
from holdfast.model.runner import Runner
from holdfast.rules.liveness import Intervals
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import runners
from holdfast.store.attempts import Fence
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database

MOST_REMEMBERED = 20_000
Unheard: TypeAlias = RunnerSuperseded | TokenInvalid


@dataclass(frozen=True, slots=True)
class RunnerCaller:
    """A runner as its token names it; *only* is the one assignment that the token is good for."""

    worker_id: int
    token_id: int
    only: Fence | None = None

    def only_for(self, fence: Fence) -> Self:
        """Return the caller where it may speak of *fence*; raises `AssignmentForeign`."""
        if self.only not in (None, fence):
            raise AssignmentForeign(*(self.only or fence))
        return self


class Hearing(Service):
    """Prolongs the leases of runners that speak; says that somebody hears them while it runs."""

    name = "hearing"

    def __init__(self, database: Database, intervals: Intervals, events: Events) -> None:
        super().__init__(events)
        self._database, self._intervals = database, intervals
        self._words, self._looks = Batcher(self._hear_batch), Batcher(self._look_batch)
        self._known: dict[RunnerCaller, tuple[Runner, float]] = {}
        self._server_id: int | None = None

    async def hear(self, caller: RunnerCaller) -> Runner:
        """Note that a runner spoke; raises `RunnerSuperseded`, `TokenInvalid`."""
        known = self._known.get(caller)
        if known is not None and known[1] > monotonic():
            return known[0]
        runner = await self._words.submit(caller)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[caller] = (runner, monotonic() + self._intervals.remembered)
        return runner

    async def look(self, caller: RunnerCaller) -> Runner:
        """Return how a runner stands by now that spoke a while ago; raises as `hear` does.

        It is not heard by that: it may have left since, and stays away.
        """
        known = self._known.get(caller)
        return known[0] if known is not None and known[1] > monotonic() else await self._looks.submit(caller)

    def forget(self) -> None:
        """Look at every runner anew: something about them has changed."""
        self._known.clear()

    def notified(self, topic: str, _rest: str) -> None:
        """React to a notification; see `store.listen`."""
        if topic in ("drain", "tokens", "reconnected"):
            self.forget()

    async def turn(self) -> float:
        """Say that runners are heard here."""
        known = self._server_id
        if known is None or not await self._database.run(runners.renew_server(known)):
            self._server_id = await self._database.run(runners.open_server(socket.gethostname()))
        return self._intervals.sync_every

    async def stop(self) -> None:
        """Stop; nobody is heard here any more."""
        await super().stop()
        server_id, self._server_id = self._server_id, None
        if server_id is not None:
            await self._database.run(runners.close_server(server_id))

    async def _hear_batch(self, callers: Sequence[RunnerCaller]) -> Sequence[Runner | Unheard]:
        heard = runners.hear_runners(_pairs(callers), self._intervals.late_after)
        return await self._told(callers, await self._database.run(heard))

    async def _look_batch(self, callers: Sequence[RunnerCaller]) -> Sequence[Runner | Unheard]:
        return await self._told(callers, await self._database.run(runners.see_runners(_pairs(callers))))

    async def _told(
        self, callers: Sequence[RunnerCaller], found: dict[int, Runner]
    ) -> list[Runner | Unheard]:
        strangers = [caller.worker_id for caller in callers if caller.worker_id not in found]
        silenced = await self._database.run(runners.silenced_runners(strangers)) if strangers else []
        return [found.get(one.worker_id) or _refusal(one.worker_id, silenced) for one in callers]


def _pairs(callers: Sequence[RunnerCaller]) -> list[tuple[int, int]]:
    return [(caller.worker_id, caller.token_id) for caller in callers]


def _refusal(worker_id: int, silenced: Sequence[int]) -> Unheard:
    problem = "the token of this runner is revoked"
    return TokenInvalid(problem) if worker_id in silenced else RunnerSuperseded(worker_id)
