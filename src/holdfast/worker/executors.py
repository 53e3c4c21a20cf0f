"""The places where sync handlers run: threads and processes."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job
from holdfast.store.database import Database
from holdfast.worker.journal import Journal
from holdfast.worker.port import AttemptPort
from holdfast.worker.processes import ProcessPool
from holdfast.worker.running import Cause, Running, TimedOut


class Executors:
    """Runs sync handlers so that the loop stays free.

    A thread cannot be killed: at its timeout the attempt ends in the database, every later wish of the
    handler is refused, and its thread is counted as taken until the handler returns.
    """

    def __init__(self, database: Database, journal: Journal, slots: int, processes: ProcessPool) -> None:
        self._database, self._journal = database, journal
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="holdfast job")
        self._processes = processes
        self.abandoned = 0

    def job_for(self, running: Running, executor: Executor) -> Job:
        """Make the `Job` that a handler of this executor gets."""
        loop = None if executor is Executor.LOOP else asyncio.get_running_loop()
        running.job = Job(running.claimed, AttemptPort(running, self._database, self._journal, loop))
        return running.job

    async def run(self, running: Running, handler: Handler[Any, Any], arguments: dict[str, Any]) -> Any:
        """Run a sync handler to its end, its timeout or its interruption."""
        if handler.executor is Executor.PROCESS:
            return await self._processes.run(running, handler)
        return await self._in_thread(running, functools.partial(handler.function, **arguments))

    async def _in_thread(self, running: Running, call: functools.partial[Any]) -> Any:
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)
        interrupted = asyncio.get_running_loop().create_future()

        def stop() -> None:
            # A lost lease and the end of the grace leave the thread alone; a cancel waits for its answer.
            if running.cause is not Cause.CANCEL and not interrupted.done():
                interrupted.set_result(None)

        running.stop = stop
        try:
            await asyncio.wait(
                {future, interrupted}, timeout=running.claimed.timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            running.stop = None
        if future.done():
            return future.result()
        self._abandon(running, future)
        if interrupted.done():
            raise asyncio.CancelledError
        raise TimedOut

    def _abandon(self, running: Running, future: asyncio.Future[Any]) -> None:
        if running.job is not None:
            running.job.cancelled = running.job.lost = True
        self.abandoned += 1
        future.add_done_callback(self._returned)

    def _returned(self, future: asyncio.Future[Any]) -> None:
        self.abandoned -= 1
        if not future.cancelled():
            # Nobody can use what an abandoned handler came to; asking for it keeps asyncio from complaining.
            future.exception()

    async def stop(self) -> None:
        """End the processes and let threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._processes.stop()
