"""What an engine holds of a run: the claim."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.rules.backoff import DEFAULT_BACKOFF, Backoff
from holdfast.store.attempts import Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One attempt of a run, in the hands of an engine.

    *run_id* and *attempt* are the fence of everything that is written for it.  *spec* is what was enqueued;
    only the engine knows what it means.  *failures* counts what went wrong before this attempt.
    """

    run_id: int
    attempt: int
    worker_id: int
    kind: str
    spec: dict[str, Any]
    queue: str
    failures: int
    max_attempts: int
    enqueued_at: datetime
    claimed_at: datetime
    retry: Backoff = DEFAULT_BACKOFF

    @property
    def fence(self) -> Fence:
        """What every write of this attempt names."""
        return Fence(self.run_id, self.attempt)
