"""What a runner and the server say to each other; docs/reference/runner-protocol.md is the contract.

Members that a newer server adds are passed over.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

PROTOCOL = 1


class Fence(NamedTuple):
    """A job and an attempt: the name of an assignment."""

    job_id: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.attempt}"


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """How often to speak and how long to wait, in seconds; the server's newest word counts."""

    sync_every: float = 10.0
    sync_wait: float = 30.0
    lost_after: float = 120.0
    cancel_grace: float = 10.0
    loss_grace: float = 10.0


class Rung(StrEnum):
    """How far a cancel has come on the runner's side."""

    ACKNOWLEDGED = "acknowledged"
    INTERRUPTED = "interrupted"
    KILLED = "killed"


class Outcome(StrEnum):
    """What an assignment came to, as the runner sees it."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"


class CancelOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the end of an assignment; *grace* is what lies between SIGINT and SIGKILL, in seconds."""

    cause: str = "requested"
    reason: str = ""
    grace: float | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a job, offered to this runner.  *spec* is None where it has to be asked for.

    *retry* is the job's own policy, None where it has none.
    """

    job: int
    attempt: int
    kind: str
    queue: str
    spec_sha256: str
    token: str
    spec: str | None = None
    priority: int = 5
    timeout: float = 300.0
    failures: int = 0
    max_attempts: int = 5
    retry: Any = None
    tags: list[str] = []
    meta: Any = None
    trace: str | None = None
    grace: float | None = None
    on_loss: str = "retry"
    enqueued_at: datetime | None = None
    offered_at: datetime | None = None

    @property
    def fence(self) -> Fence:
        """The name of the assignment."""
        return Fence(self.job, self.attempt)


class StreamTotal(msgspec.Struct, frozen=True, kw_only=True):
    """A whole stream: its *size* and the sum of what was sent; *gap* gives up what the server lacks."""

    size: int
    sha256: str
    gap: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an assignment ended; *retry* False says that it is not to be taken up again.

    *delay* is in seconds: when it may be taken up again.  *rung* is the last one that a cancel, or a timeout,
    has come to.
    """

    outcome: Outcome
    reason: str = ""
    error: str | None = None
    result: Any = None
    retry: bool = True
    delay: float | None = None
    rung: Rung | None = None
    logs: dict[str, StreamTotal] | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One assignment in a sync: what the runner does about it."""

    job: int
    attempt: int
    state: str
    progress: float | None = None
    note: str | None = None
    alive: bool = False
    rung: Rung | None = None
    report: Report | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment in the answer to a sync: what the server makes of it."""

    job: int
    attempt: int
    state: str
    cancel: CancelOrder | None = None
    assignment: Assignment | None = None

    @property
    def fence(self) -> Fence:
        """The name of the assignment."""
        return Fence(self.job, self.attempt)


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a start."""

    state: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report."""

    outcome: str


class SyncAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner should hold."""

    hold: list[Hold]
    draining: bool = False
    intervals: Intervals = Intervals()
    refused: list[dict[str, Any]] = []


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the runner is to the server."""

    id: int
    name: str
    term: int


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a registration."""

    runner: Identity
    token: str
    protocol: int = PROTOCOL
    draining: bool = False
    intervals: Intervals = Intervals()


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of itself."""

    name: str
    host: str
    version: str
    labels: tuple[str, ...]
    kinds: tuple[str, ...]
    queues: tuple[str, ...]
    slots: int
    capacity: dict[str, int] = {}
    protocols: tuple[int, ...] = (PROTOCOL,)
