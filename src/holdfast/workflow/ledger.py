"""What a run needs from whoever runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from holdfast.app.handler import Executor, Handler
from holdfast.model.job import ClaimedJob
from holdfast.model.step import StepNote
from holdfast.store.attempts import Fence
from holdfast.store.signals import Taken, Waiter
from holdfast.store.statement import Statement
from holdfast.store.steps import Memory

T = TypeVar("T")


class StepTimedOut(Exception):
    """A step took longer than its timeout."""


class Ledger(Protocol):
    """The way of one attempt of a run to the database and to the executors: a worker's, in a worker.

    Every write raises `LeaseLost` once another attempt may own the run; places that are written and signals
    that are taken begin its timeout anew.  *heard* is when the claim was
    answered, by the monotonic clock.
    """

    claimed: ClaimedJob
    fence: Fence
    heard: float

    def save(self, notes: Sequence[StepNote]) -> asyncio.Future[bool]:
        """Write places; answers whether the run is to be paused."""

    def show(self, note: StepNote) -> None:
        """Write a place behind the run's back; whether that succeeds is nobody's concern."""

    def leave(self, asked: asyncio.Future[Any]) -> None:
        """Have `load` wait for what the run has asked for and stays no longer for."""

    async def load(self) -> Memory | None:
        """Load what the run remembers, as often as the database is away; None where it has ended."""

    async def take_signal(self, waiter: Waiter) -> Taken | None:
        """Give a place the oldest signal of its name; None: the lease was lost."""

    async def ask(self, statement: Statement[T]) -> T:
        """Run a statement, as often as the database is away."""

    async def commit(self, *statements: Statement[Any]) -> list[Any]:
        """Run statements in one transaction; one that answers nothing undoes them all: the lease is lost."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Lend a connection of its own inside a transaction that commits when the block ends well."""

    async def run_on(self, connection: Any, statement: Statement[T]) -> T:
        """Run a statement on a connection that `transaction` has lent."""

    async def outside(
        self,
        executor: Executor,
        call: Callable[[], Any],
        handler: Handler[Any, Any] | None,
        arguments: str,
        timeout: float,
    ) -> Any:
        """Run a sync function in a thread (*call*) or a process (*handler* with JSON *arguments*).

        Raises `StepTimedOut` after *timeout* seconds.
        """

    def completion(self, value: Any) -> Statement[list[int]]:
        """Return what completes the run with this result; raises `InputInvalid`."""

    def is_cancelled(self) -> bool:
        """True once the attempt is being stopped because its cancel was requested."""

    def is_stopped(self) -> bool:
        """True once the attempt is stopped from outside: by a cancel, a release, a timeout, a lost lease."""

    def heed_cancel(self) -> None:
        """Take note that the run knows of its cancel: nobody is to stop it for that any more."""

    async def quiet(self) -> None:
        """Wait for threads that work on for steps which were cut off."""

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress of the run."""

    async def settle(self) -> None:
        """Write what was logged so far, before a transaction ends the attempt."""

    def settled(self) -> None:
        """Note that a transaction has ended the attempt."""
