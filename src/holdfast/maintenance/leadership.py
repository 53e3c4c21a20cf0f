"""Who does maintenance: one leader at a time, each in a term of its own."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import leader
from holdfast.store.database import Database

LEASE = 4.0
RENEW_EVERY = 1.3


class Leadership(Service):
    """Renews or takes the duty; *term* is its number while we hold it, else None.

    The duty lasts 4 s and is renewed three times as often; whoever waits asks as often as the leader
    renews, so a dead one is followed within 6 s and one that resigns at once.
    """

    name = "leadership"

    def __init__(self, database: Database, holder: str, events: Events) -> None:
        super().__init__(events)
        self._database, self.holder = database, holder
        self.term: int | None = None
        self.changed: Callable[[], None] = lambda: None

    async def turn(self) -> float:
        """Renew the duty, or take it where nobody holds it."""
        former = self.term
        try:
            self.term = await self._database.run(leader.lead(self.holder, None, LEASE))
        except HoldfastError:
            # Not knowing is not leading; the statements' own fence would refuse us as well.
            self.term = None
            raise
        if self.term != former:
            self.events.emit("leader.changed", leads=self.term is not None, term=self.term or former)
            self.changed()
        return RENEW_EVERY * random.uniform(0.9, 1.1)  # noqa: S311 - spreads candidates, guards nothing

    async def stop(self) -> None:
        """Stop, and give the duty up so that another takes over at once."""
        await super().stop()
        term, self.term = self.term, None
        if term is not None:
            await self._database.run(leader.resign(self.holder, term))
