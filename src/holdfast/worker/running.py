"""One attempt while this worker holds it, and the set of all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec

from holdfast.app.job import Job
from holdfast.model.job import ClaimedJob
from holdfast.store.attempts import Fence, Turn


class Cause(StrEnum):
    """Why a handler is being stopped from outside."""

    CANCEL = "cancel"
    LOST = "lost"
    RELEASE = "release"


class Settlement(StrEnum):
    """How far a transaction of its own has come to end an attempt.

    In doubt it may have: it failed, or nothing was heard of its commit.
    """

    NONE = "none"
    UNDER_WAY = "under way"
    IN_DOUBT = "in doubt"
    COMMITTED = "committed"


class TimedOut(Exception):
    """The handler ran longer than its job's timeout."""


# A cause that comes later is obeyed if it is the stronger one.
_STRENGTH = {None: 0, Cause.CANCEL: 1, Cause.RELEASE: 2, Cause.LOST: 3}


class Recorded(NamedTuple):
    """When it was *heard* that an end is written, and whether it is told exactly, by its bundle's clock."""

    heard: float
    is_exact: bool


class Running(msgspec.Struct, eq=False):
    """An attempt whose handler has begun.

    *heard* is when its claim was answered, by the monotonic clock: the database's time was about
    ``claimed.claimed_at`` then.  *marked* says that the database knows that it has begun.
    *stop* ends the handler: it cancels the coroutine or kills the process; a thread can only be told.
    *error* is what the handler raised, for whoever wants more than its text.
    *on_settled* is called when a transaction of its own has ended it, by whichever thread learns of it first.
    *limit* is the clock of its own timeout, where that cancels its handler; *renew* begins it anew.
    *permit_recorded* is done once the database knows of the permit that it was handed, or of the end of the
    one before it of its key; None: it was handed none, and follows nobody.
    *leftover* is a thread that works on although its attempt has ended; it takes the slot until it is done.
    """

    claimed: ClaimedJob
    fence: Fence
    heard: float
    began: float
    marked: bool
    permit_recorded: asyncio.Future[Recorded] | None = None
    cause: Cause | None = None
    error: BaseException | None = None
    settlement: Settlement = Settlement.NONE
    job: Job | None = None
    leftover: asyncio.Future[Any] | None = None
    limit: asyncio.Timeout | None = None
    renew: Callable[[], object] | None = None
    stop: Callable[[], object] | None = None
    on_settled: Callable[[], object] | None = None

    @classmethod
    def now(cls, claimed: ClaimedJob) -> Self:
        """Begin an attempt whose claim was answered just now."""
        began = time.monotonic()
        return cls(claimed, Fence(claimed.id, claimed.attempt), began, began, claimed.started)

    def interrupt(self, cause: Cause) -> None:
        """Ask the handler to end; a release overrides a cancel, and a lost lease both."""
        if _STRENGTH[cause] > _STRENGTH[self.cause]:
            self.cause = cause
        if self.job is not None:
            self.job.cancelled = True
            self.job.lost = self.job.lost or cause is Cause.LOST
        if self.stop is not None:
            self.stop()

    @property
    def is_stopped(self) -> bool:
        """True once somebody stops the handler from outside, or the timeout of its job does."""
        return self.cause is not None or (self.limit is not None and self.limit.expired())

    @property
    def is_settled(self) -> bool:
        """True once a transaction of its own has ended the attempt."""
        return self.settlement is Settlement.COMMITTED

    def begin_end(self) -> None:
        """Note that the attempt's own transaction is about to end it."""
        if not self.is_settled:
            self.settlement = Settlement.UNDER_WAY

    def end(self, committed: bool) -> None:
        """Note what came of the attempt's own transaction."""
        if not self.is_settled:
            self.settlement = Settlement.COMMITTED if committed else Settlement.IN_DOUBT
        if committed and self.on_settled is not None:
            self.on_settled()

    @property
    def is_worked_on(self) -> bool:
        """True where it may have an end of its own, or somebody works on for it."""
        return self.settlement is not Settlement.NONE or self.leftover is not None

    def turn(self, now: float) -> Turn:
        """Return what is told of a job with a key that ends *now*."""
        before = self.permit_recorded
        if before is None:
            return Turn(self.began, False, now - self.began)
        if not before.done():
            return Turn(self.began, True, 0.0)
        apart, is_exact = self._began_apart(before), before.result().is_exact
        return Turn(self.began if is_exact else apart, False, now - apart)

    async def wait_for_turn(self) -> None:
        """Wait until the end of the one before it of its key is written, and tell of nothing before that."""
        if self.claimed.key is not None and self.permit_recorded is not None:
            await asyncio.wait({self.permit_recorded})
            self.began = self._began_apart(self.permit_recorded)

    def _began_apart(self, before: asyncio.Future[Recorded]) -> float:
        """Return from when on no other of its key can be told to have run."""
        return max(self.began, before.result().heard)

    @property
    def seconds(self) -> float:
        """How long the handler has run."""
        return time.monotonic() - self.began


class Held:
    """Everything this worker holds, from the claim until the report is acknowledged.

    The database is the truth; this is what it is compared with after a doubtful answer.  *on_drop* is called
    with what it holds no longer.
    """

    def __init__(self) -> None:
        self.fences: set[Fence] = set()
        self.running: dict[Fence, Running] = {}
        self.on_drop: Callable[[list[Fence]], object] = lambda _: None
        self._empty = asyncio.Event()
        self._empty.set()

    def take(self, fences: Iterable[Fence]) -> None:
        """Remember attempts that this worker owns from now on."""
        self.fences.update(fences)
        if self.fences:
            self._empty.clear()

    def drop(self, fences: list[Fence]) -> None:
        """Forget attempts whose end is recorded or whose lease is lost."""
        self.fences.difference_update(fences)
        self.on_drop(fences)
        if not self.fences:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until nothing is held."""
        await self._empty.wait()
