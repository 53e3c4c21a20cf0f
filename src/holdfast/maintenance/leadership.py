"""Who does maintenance: one leader at a time, each in a term of its own."""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import leader
from holdfast.store.database import Database

# One renewal may fail, but no more: an idle fleet should leave the database alone.
RENEWALS_IN_A_TTL = 2.2
# Candidates come one after another, in seconds.
SPREAD = 0.1


class Leadership(Service):
    """Renews or takes the duty; *term* is its number while we hold it, else None.

    The duty lasts *ttl* seconds without renewal.  Whoever waits sleeps until it would run out, so a dead
    leader is followed as soon as may be, and one that resigns at once.  *worker_id* answers under which
    worker's name we stand, if any.
    """

    name = "leadership"

    def __init__(
        self, database: Database, ttl: float, worker_id: Callable[[], int | None], events: Events
    ) -> None:
        super().__init__(events)
        self._database, self._ttl, self._worker_id = database, ttl, worker_id
        # Two processes under one name would both believe that they lead.
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.term: int | None = None
        self.changed: Callable[[], None] = lambda: None

    async def turn(self) -> float:
        """Renew the duty, or take it where nobody holds it."""
        former = self.term
        try:
            duty = leader.lead(self.holder, self._worker_id(), self._ttl, self._ttl + leader.SILENCE)
            self.term = await self._database.run(duty)
        except HoldfastError:
            # Not knowing is not leading; the statements' own fence would refuse us as well.
            self.term = None
            raise
        if self.term != former:
            self.events.emit("leader.changed", leads=self.term is not None, term=self.term or former)
            self.changed()
        return await self._until_next()

    async def _until_next(self) -> float:
        spread = SPREAD * random.random()  # noqa: S311 - spreads candidates, guards nothing
        renewal = self._ttl / RENEWALS_IN_A_TTL
        if self.term is not None:
            return renewal - spread
        lapse = await self._database.run(leader.leader_lapse())
        return max(0.0, renewal if lapse is None else min(lapse, self._ttl)) + spread

    async def stop(self) -> None:
        """Stop, and give the duty up so that another takes over at once."""
        await super().stop()
        term, self.term = self.term, None
        if term is None:
            return
        try:
            await self._database.run(leader.resign(self.holder, term))
        except HoldfastError as error:
            # Resigning is a courtesy: without it the duty runs out by itself.
            self.events.emit("leader.not_resigned", term=term, error=error)
