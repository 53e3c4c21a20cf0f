"""The places where sync handlers run: threads and processes."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Any

from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job
from holdfast.errors import HoldfastError
from holdfast.store import attempts
from holdfast.store.database import Database
from holdfast.store.sessions import Sessions
from holdfast.store.sync_sessions import SyncSessions
from holdfast.worker.bundles import Bundles
from holdfast.worker.journal import Journal
from holdfast.worker.ledger import RunLedger
from holdfast.worker.port import AttemptPort
from holdfast.worker.processes import ProcessPool
from holdfast.worker.run_reader import RunReader
from holdfast.worker.running import Cause, Running, TimedOut
from holdfast.worker.step_writer import StepWriter
from holdfast.worker.threads import Result, Threads


class Executors:
    """Runs sync handlers so that the loop stays free.

    A thread cannot be killed: at its timeout the attempt ends in the database, every later wish of the
    handler is refused, and its slot is taken until the handler returns.
    """

    def __init__(
        self,
        database: Database,
        journal: Journal,
        step_writer: StepWriter,
        run_reader: RunReader,
        bundles: Bundles,
        slots: int,
    ) -> None:
        self._database, self._journal, self._bundles = database, journal, bundles
        self._step_writer, self._run_reader = step_writer, run_reader
        self._sessions = Sessions(database.config, slots)
        self._sync_sessions = SyncSessions(database.config)
        self._threads = Threads()
        self._processes = ProcessPool(database.config)

    def job_for(self, running: Running, executor: Executor) -> Job:  # noqa: ARG002 - one port serves them all
        """Make the `Job` that a handler and its middleware get."""
        running.job = Job(running.claimed, self._port(running))
        return running.job

    def _port(self, running: Running) -> AttemptPort:
        return AttemptPort(
            running,
            database=self._database,
            bundles=self._bundles,
            sessions=self._sessions,
            sync_sessions=self._sync_sessions,
            journal=self._journal,
        )

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Run a sync handler to its end, its timeout or its interruption."""
        # It may end by a transaction of its own, which it tells nobody of before.
        await running.wait_for_turn()
        if running.cause is not None:
            raise asyncio.CancelledError
        if handler.executor is Executor.PROCESS:
            return await self._processes.run(running, handler, self._port(running))
        return await self.in_thread(running, functools.partial(handler.function, **arguments))

    async def note_begun(self, running: Running) -> bool:
        """Record that an attempt begins: if its handler ends this process at once, that counts."""
        begun = attempts.start_jobs([(running.fence, 0.0)])
        try:
            await self._bundles.untie([running.fence])
            running.marked = running.claimed.id in await self._database.run(begun)
        except HoldfastError:
            return False
        return running.marked

    def ledger_for(self, running: Running) -> RunLedger:
        """Make what a run needs to go on."""
        return RunLedger(
            running,
            self._port(running),
            database=self._database,
            step_writer=self._step_writer,
            run_reader=self._run_reader,
            sessions=self._sessions,
            places=self,
        )

    async def in_thread(self, running: Running, call: Callable[[], Any]) -> Any:
        """Run a function in a thread, to its end, its timeout or its interruption."""
        context = contextvars.copy_context()
        called = self._threads.run(functools.partial(context.run, call))
        interrupted = asyncio.get_running_loop().create_future()

        def stop() -> None:
            # A lost lease and the end of the grace leave the thread alone; a cancel waits for its answer.
            if running.cause is not Cause.CANCEL and not interrupted.done():
                interrupted.set_result(None)

        running.stop = stop
        try:
            await asyncio.wait(
                {called, interrupted}, timeout=running.claimed.timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            running.stop = None
            if not called.done():
                self._abandon(running, called)
        if called.done():
            value, error = called.result()
            if error is not None:
                raise error
            return value
        if interrupted.done():
            raise asyncio.CancelledError
        raise TimedOut

    def _abandon(self, running: Running, called: asyncio.Future[Result]) -> None:
        if running.job is not None:
            running.job.cancelled = running.job.lost = True
        running.leftover = called

    async def stop(self) -> None:
        """End the processes and let threads go."""
        self._threads.stop()
        self._sync_sessions.close()
        await self._processes.stop()
        await self._sessions.close()
