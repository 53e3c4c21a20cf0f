"""The settings of one worker process, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import OptionInvalid
from holdfast.store.database import DatabaseConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How a worker works; all times in seconds.

    *queues* take turns at being asked first, each once however often it is named; *slots* is how
    many handlers run at once; *ttl* is how long the lease lasts without renewal; *prefetch* bounds the buffer
    beyond the slots.
    """

    database: DatabaseConfig
    queues: tuple[str, ...]
    slots: int = 10
    ttl: float = 30.0
    poll: float = 5.0
    grace: float = 30.0
    prefetch: int = 4000
    labels: tuple[str, ...] = ()
    name: str | None = None
    listen: bool = True

    def __post_init__(self) -> None:
        if not self.queues:
            raise OptionInvalid("queues", self.queues, "name at least one queue to work on")
        object.__setattr__(self, "queues", tuple(dict.fromkeys(self.queues)))
        if not 1 <= self.slots <= 10_000:
            raise OptionInvalid("slots", self.slots, "give a whole number from 1 to 10000")
        for option, least in (("ttl", 1.0), ("poll", 0.05), ("grace", 0.0)):
            if not getattr(self, option) >= least:
                raise OptionInvalid(option, getattr(self, option), f"give at least {least:g} seconds")
        if self.prefetch < 0:
            raise OptionInvalid("prefetch", self.prefetch, "give 0 or more")

    @property
    def renew_every(self) -> float:
        """A third of the ttl: two renewals may fail before the lease is lost."""
        return self.ttl / 3

    @property
    def listens(self) -> bool:
        """True where LISTEN works: not behind a pooler."""
        return self.listen and not self.database.pgbouncer
