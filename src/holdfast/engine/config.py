"""What an engine says of itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.app.options import seconds_from
from holdfast.errors import OptionInvalid
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.store.workers import NewWorker

LEAST_TTL, MOST_TTL = 0.5, 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine process as a worker: the *kinds* that it knows and the *queues* from which it takes them.

    Its lease runs out *ttl* seconds after the last renewal.  *version* is that of the states that it saves;
    *redactions* are rules from a step's name and a value to what is shown of the value.
    """

    kinds: Sequence[str]
    queues: Sequence[str] = (DEFAULT_QUEUE,)
    name: str = "engine"
    slots: int = 10
    ttl: float = 30.0
    version: int = 1
    redactions: Sequence[Callable[[str, Any], Any]] = field(default=())

    def __post_init__(self) -> None:
        for option in ("kinds", "queues"):
            given = getattr(self, option)
            if isinstance(given, str) or not given:
                raise OptionInvalid(option, given, "give a list with at least one name")
        if seconds_from("ttl", self.ttl, least=LEAST_TTL) > MOST_TTL:
            raise OptionInvalid("ttl", self.ttl, "give at most a day")

    def as_worker(self) -> NewWorker:
        """Return the row under which this process holds its leases."""
        return NewWorker(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version="engine",
            queues=tuple(self.queues),
            kinds=tuple(self.kinds),
            workflows=tuple(self.kinds),
            slots=self.slots,
            ttl=float(self.ttl),
        )
