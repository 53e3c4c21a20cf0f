"""The shape of every duty: it rests until this process leads."""

from __future__ import annotations

from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.leadership import Leadership
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store.database import Database

NOT_LEADING = 3600.0
# Who becomes leader has often just started, and has jobs to see to: what is in no hurry rests for so many
# seconds.
FIRST_MOMENT = 1.0


class Duty(Service):
    """A service that takes turns only as leader.

    A subclass writes `lead`, and `begin_term` if it remembers anything from one round to the next.  One that
    is *in_no_hurry* leaves a new leader its first moment; `first_rest` is for those that rest longer.
    """

    in_no_hurry = False

    def __init__(
        self, database: Database, leadership: Leadership, config: MaintenanceConfig, events: Events
    ) -> None:
        super().__init__(events)
        self.database, self.leadership, self.config = database, leadership, config
        self._term: int | None = None
        self.begin_term()

    async def turn(self) -> float:
        """Do one round as leader, or rest until that changes."""
        term = self.leadership.term
        if term is None:
            return NOT_LEADING
        if term != self._term:
            self._term = term
            self.begin_term()
            if self.first_rest > 0:
                return self.first_rest
        return await self.lead(term)

    def begin_term(self) -> None:
        """Remember nothing of a former term: others may have led since."""

    @property
    def first_rest(self) -> float:
        """How many seconds to rest in a new term before its first round."""
        return FIRST_MOMENT if self.in_no_hurry else 0.0

    async def lead(self, term: int) -> float:
        """Do one round in *term*; answer how many seconds to rest."""
        raise NotImplementedError
