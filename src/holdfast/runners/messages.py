"""What runners send and what they are answered; docs/reference/runner-protocol.md is the contract."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from holdfast.app.options import LONGEST_KIND, LONGEST_SECONDS
from holdfast.model.runner import Rung
from holdfast.rules.reports import ReportedOutcome

PROTOCOLS = (1,)
MOST_HELD = 1000
# A spec that is longer is read by a request of its own.
LONGEST_INLINE_SPEC = 64 * 1024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_KIND)]
Names = Annotated[list[Name], msgspec.Meta(max_length=100)]
# Python's `$` lets a line end follow, and what reads our OpenAPI knows no `\Z`.
MachineName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\n)")
]
Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Attempt = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=MOST_HELD)]
Note = Annotated[str, msgspec.Meta(max_length=1000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# What a handler may ask for, wherever it runs.
Delay = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_SECONDS)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=60)]


class Register(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine says what it is."""

    name: MachineName
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""
    version: Annotated[str, msgspec.Meta(max_length=100)] = ""
    protocols: list[int]
    labels: Names = []
    kinds: Annotated[list[Kind], msgspec.Meta(max_length=1000)] = msgspec.field(
        default_factory=lambda: ["command"]
    )
    queues: Names = msgspec.field(default_factory=lambda: ["default"])
    slots: Slots = 1
    capacity: dict[Name, Annotated[int, msgspec.Meta(ge=0, le=MOST_HELD)]] = {}


class IntervalsTold(msgspec.Struct, frozen=True):
    """The intervals that a runner is to use, in seconds."""

    sync_every: float
    sync_wait: float
    late_after: float
    offline_after: float
    lost_after: float
    offer_for: float
    cancel_grace: float
    loss_grace: float


class RunnerName(msgspec.Struct, frozen=True):
    """Who a runner is to the server."""

    id: int
    name: str
    term: int


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a registration; *token* is shown this once."""

    runner: RunnerName
    token: str
    protocol: int
    draining: bool
    server_time: datetime
    intervals: IntervalsTold


class StreamTotal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a stream of a log came to; *gap* gives up what the server lacks."""

    size: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    gap: bool = False


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an assignment ended; *delay* is when it may be taken up again, in seconds."""

    outcome: ReportedOutcome
    reason: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    error: Annotated[str, msgspec.Meta(max_length=200_000)] | None = None
    result: Any = None
    retry: bool = True
    delay: Delay | None = None
    rung: Rung | None = None
    logs: dict[str, StreamTotal] | None = None


class HeldByRunner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One assignment in the list of a runner."""

    job: Id
    attempt: Attempt
    state: Literal["accepted", "running", "ended"]
    progress: Share | None = None
    note: Note | None = None
    alive: bool = False
    rung: Rung | None = None
    report: Report | None = None


class Sync(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that a runner holds."""

    held: Annotated[list[HeldByRunner], msgspec.Meta(max_length=MOST_HELD)] = []
    number: Number | None = None
    free: Annotated[int, msgspec.Meta(ge=0, le=MOST_HELD)] = 0
    wait: Wait = 0.0
    draining: bool = False


class CancelOrder(msgspec.Struct, frozen=True):
    """Asks for the end of an assignment, with *grace* seconds between SIGINT and SIGKILL."""

    cause: str
    reason: str
    requested_at: datetime
    grace: float


class AssignmentTold(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as it is offered; *spec* is null where it has to be read by itself.

    *retry* is the policy that was given when the job was enqueued, null where none was.
    """

    job: int
    attempt: int
    kind: str
    queue: str
    priority: int
    timeout: float
    failures: int
    max_attempts: int
    retry: Any
    tags: list[str]
    meta: Any
    trace: str | None
    enqueued_at: datetime
    offered_at: datetime
    grace: float
    on_loss: str
    spec_sha256: str
    spec: str | None
    token: str


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment of those that a runner should hold."""

    job: int
    attempt: int
    state: Literal["offered", "accepted", "running"]
    cancel: CancelOrder | None = None
    assignment: AssignmentTold | None = None


class TruthTold(msgspec.Struct, frozen=True):
    """How a job stands where a runner believes something else; *outcome* is of the attempt it speaks of."""

    state: str
    attempt: int
    runner: str | None
    outcome: str | None


class Refusal(msgspec.Struct, frozen=True):
    """An assignment that is not the runner's any more, or a report that was not accepted."""

    job: int
    attempt: int
    type: str
    detail: str
    truth: TruthTold | None


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a runner should hold."""

    number: int | None
    server_time: datetime
    draining: bool
    intervals: IntervalsTold
    hold: list[Hold]
    refused: list[Refusal]


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A runner asks for assignments."""

    number: Number | None = None
    count: Slots = 1
    wait: Wait = 0.0


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is offered."""

    offers: list[AssignmentTold]
    draining: bool
    server_time: datetime


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a runner says of one assignment."""

    number: Number | None = None
    progress: Share | None = None
    note: Note | None = None
    alive: bool = False
    rung: Rung | None = None


class Stand(msgspec.Struct, frozen=True):
    """How an assignment stands."""

    job: int
    attempt: int
    state: Literal["accepted", "running"]
    cancel: CancelOrder | None


class Finish(Report, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A runner reports the end of an assignment."""

    number: Number | None = None


class Finished(msgspec.Struct, frozen=True):
    """What came of a report."""

    outcome: str
    repeated: bool


class Leave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A runner goes."""

    number: Number | None = None
