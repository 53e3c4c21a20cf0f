"""A handler's own transaction: its writes, the jobs it enqueues and its completion commit as one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from holdfast.app.answers import result_text
from holdfast.app.job import Job, Transaction
from holdfast.errors import InputInvalid, LeaseLost
from holdfast.store import attempts
from holdfast.store.attempts import Fence
from holdfast.store.database import Connection, run_on
from holdfast.store.foreign import run_on_psycopg
from holdfast.store.sessions import Sessions
from holdfast.store.statement import Statement
from holdfast.store.sync_database import SyncConnection
from holdfast.store.sync_sessions import SyncSessions
from holdfast.worker.running import Running


def _completion(job: Job, began: float) -> Statement[list[int]]:
    result = result_text(job.kind, job.result)
    return attempts.complete_one(Fence(job.id, job.attempt), result, time.monotonic() - began)


class LoopTransaction(Transaction):
    """``async with``: gives an asyncpg connection inside a transaction.

    *open_up* is called before it begins; *settle* writes what was logged so far: once the transaction has
    ended the job, its log is closed.
    """

    def __init__(
        self,
        job: Job,
        running: Running,
        sessions: Sessions,
        *,
        open_up: Callable[[], Awaitable[None]],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._job, self._running, self._sessions = job, running, sessions
        self._open_up, self._settle = open_up, settle
        self._inner: AbstractAsyncContextManager[Connection] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Any:
        msg = "in an async handler write `async with job.transaction() as connection`"
        raise InputInvalid(msg)

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> Connection:
        await self._open_up()
        self._inner = self._sessions.transaction()
        self._connection = await self._inner.__aenter__()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._inner is not None  # noqa: S101 - entered before it is left
        if kind is not None:
            return await self._inner.__aexit__(kind, error, trace)
        committed = False
        try:
            await self._complete()
            await self._inner.__aexit__(None, None, None)
            committed = True
        finally:
            self._running.end(committed)
        return None

    async def _complete(self) -> None:
        assert self._inner is not None  # noqa: S101 - entered before it is left
        assert self._connection is not None  # noqa: S101 - entered before it is left
        try:
            statement = _completion(self._job, self._running.began)
            await self._settle()
            if not await run_on(self._connection, statement, self._sessions.config.schema):
                raise LeaseLost(self._job.id, self._job.attempt)
        except BaseException as refusal:
            await self._inner.__aexit__(type(refusal), refusal, refusal.__traceback__)
            raise


@dataclass(frozen=True, slots=True)
class Beside:
    """What the worker does for a transaction that runs beside its loop.

    *began* is when the handler began, by the monotonic clock; *open_up* is called before the transaction
    begins; *settle* writes what was logged so far; *settled* tells the worker whether it was committed.
    """

    began: float
    open_up: Callable[[], object]
    settle: Callable[[], object]
    settled: Callable[[bool], object]


class SyncTransaction(Transaction):
    """``with``: gives a psycopg connection inside a transaction, for handlers in threads and processes."""

    def __init__(self, job: Job, worker: Beside, sessions: SyncSessions) -> None:
        self._job, self._worker, self._sessions = job, worker, sessions
        self._connection: SyncConnection | None = None

    async def __aenter__(self) -> Any:
        msg = "in a sync handler write `with job.transaction() as connection`"
        raise InputInvalid(msg)

    async def __aexit__(self, *_: object) -> None:
        return None

    def __enter__(self) -> SyncConnection:
        self._worker.open_up()
        self._connection = self._sessions.lend()
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._connection
        assert connection is not None  # noqa: S101 - entered before it is left
        try:
            if kind is None:
                self._complete(connection)
        finally:
            self._sessions.take_back(connection)

    def _complete(self, connection: SyncConnection) -> None:
        statement = _completion(self._job, self._worker.began)
        self._worker.settle()
        committed = False
        try:
            if not run_on_psycopg(connection, statement, self._sessions.config.schema):
                raise LeaseLost(self._job.id, self._job.attempt)
            connection.commit()
            committed = True
        finally:
            self._worker.settled(committed)
