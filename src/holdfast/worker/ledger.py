"""The way of a run to the database and to the executors of its worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.app.answers import result_text
from holdfast.app.handler import Executor, Handler
from holdfast.errors import DatabaseRefused, DatabaseUnavailable, LeaseLost
from holdfast.model.step import StepNote
from holdfast.runtime.pauses import doubling
from holdfast.store import attempts
from holdfast.store.database import Connection, Database, begun_anew, own_errors, run_on
from holdfast.store.sessions import Sessions
from holdfast.store.signals import Taken, Waiter
from holdfast.store.statement import Statement
from holdfast.store.steps import Memory
from holdfast.worker.port import AttemptPort
from holdfast.worker.run_reader import RunReader
from holdfast.worker.running import Cause, Running, TimedOut
from holdfast.worker.step_writer import StepWriter
from holdfast.workflow.ledger import StepTimedOut

T = TypeVar("T")


class SyncPlaces(Protocol):
    """Where sync functions run: `Executors` in a worker."""

    async def in_thread(self, running: Running, call: Callable[[], Any]) -> Any:
        """Run a function in a thread."""

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Run a handler in its executor."""


class RunLedger:
    """Serves one attempt of a run; see `holdfast.workflow.ledger.Ledger`."""

    def __init__(
        self,
        running: Running,
        port: AttemptPort,
        *,
        database: Database,
        step_writer: StepWriter,
        run_reader: RunReader,
        sessions: Sessions,
        places: SyncPlaces,
    ) -> None:
        self.claimed, self.fence, self.heard = running.claimed, running.fence, running.heard
        self._running, self._port = running, port
        self._database, self._step_writer, self._run_reader = database, step_writer, run_reader
        self._sessions, self._places = sessions, places
        self._left: list[asyncio.Future[Any]] = []

    def save(self, notes: Sequence[StepNote]) -> asyncio.Future[bool]:
        """Write places; answers whether the run is to be paused."""
        self._renew()
        return self._step_writer.hand_in(self.fence, notes)

    def show(self, note: StepNote) -> None:
        """Write a place behind the run's back."""
        self._step_writer.hand_in(self.fence, [note]).add_done_callback(_overlook)

    def leave(self, asked: asyncio.Future[Any]) -> None:
        """Have `load` wait for what the run has asked for and stays no longer for."""
        asked.add_done_callback(_overlook)
        self._left.append(asked)

    async def load(self) -> Memory | None:
        """Load what the run remembers; None where it has ended."""
        if self._left:
            await asyncio.wait(self._left)
        return await self._insist(lambda: self._run_reader.load(self.fence.job_id))

    async def take_signal(self, waiter: Waiter) -> Taken | None:
        """Give a place the oldest signal of its name; None: the lease was lost."""
        taken = await self._insist(lambda: self._run_reader.take_signal(waiter))
        if taken is not None and taken.text is not None:
            self._renew()
        return taken

    async def ask(self, statement: Statement[T]) -> T:
        """Run a statement."""
        return await self._insist(lambda: self._database.run(statement))

    def _renew(self) -> None:
        """Give a run that gets on its whole timeout again, from here."""
        if self._running.renew is not None:
            self._running.renew()

    async def _insist(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask as often as the database is away, for as long as the lease is not lost."""
        pauses = doubling()
        while True:
            try:
                return await question()
            except (DatabaseUnavailable, DatabaseRefused):
                if self._running.cause is Cause.LOST:
                    raise LeaseLost(*self.fence) from None
            await asyncio.sleep(next(pauses))

    async def commit(self, *statements: Statement[Any]) -> list[Any]:
        """Run statements in one transaction; one that answers nothing undoes them all."""
        self._renew()
        return await begun_anew(lambda: self._committed(statements))

    async def _committed(self, statements: Sequence[Statement[Any]]) -> list[Any]:
        answers = []
        async with self._database.transaction() as connection:
            for statement in statements:
                answer = await self._database.run(statement, connection)
                if not answer:
                    raise LeaseLost(*self.fence)
                answers.append(answer)
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection of its own inside a transaction."""
        with own_errors(self._database.schema):
            async with self._sessions.transaction() as connection:
                yield connection

    async def run_on(self, connection: Connection, statement: Statement[T]) -> T:
        """Run a statement on a connection that `transaction` has lent."""
        self._renew()
        return await run_on(connection, statement, self._database.schema)

    async def outside(
        self,
        executor: Executor,
        call: Callable[[], Any],
        handler: Handler[Any, Any] | None,
        arguments: str,
        timeout: float,
    ) -> Any:
        """Run a sync function in a thread or a process; raises `StepTimedOut`."""
        own = Running.now(msgspec.structs.replace(self.claimed, timeout=timeout, args=arguments))
        try:
            if executor is Executor.THREAD:
                return await self._places.in_thread(own, call)
            assert handler is not None  # noqa: S101 - a process is told by its handler what to run
            return await self._places.run(own, handler, {})
        except TimedOut:
            raise StepTimedOut from None
        finally:
            self._sit_out(own)

    def _sit_out(self, own: Running) -> None:
        """Have the slot wait for a thread that works on for a step that has ended."""
        if own.leftover is not None:
            before = self._running.leftover
            both = [own.leftover] if before is None else [before, own.leftover]
            self._running.leftover = asyncio.gather(*both, return_exceptions=True)

    def completion(self, value: Any) -> Statement[list[int]]:
        """Return what completes the run with this result; raises `InputInvalid`."""
        result = result_text(self.claimed.kind, value)
        return attempts.complete_one(self.fence, result, time.monotonic() - self._running.began)

    def is_cancelled(self) -> bool:
        """True once the attempt is being stopped because its cancel was requested."""
        return self._running.cause is Cause.CANCEL

    def is_stopped(self) -> bool:
        """True once the attempt is being stopped from outside."""
        return self._running.is_stopped

    def heed_cancel(self) -> None:
        """Take note that the run knows of its cancel: nobody is to stop it for that any more."""
        self._running.cause = self._running.cause or Cause.CANCEL

    async def quiet(self) -> None:
        """Wait for threads that work on for steps which were cut off."""
        if self._running.leftover is not None:
            await asyncio.wait({self._running.leftover})

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress of the run."""
        self._port.progress(fraction, note)

    async def settle(self) -> None:
        """Write what was logged so far, before a transaction ends the attempt."""
        await self._port.settle()

    def settled(self) -> None:
        """Note that a transaction has ended the attempt."""
        self._running.end(True)


def _overlook(written: asyncio.Future[bool]) -> None:
    """Take notice of an error that concerns nobody."""
    if not written.cancelled():
        written.exception()
