"""A handler's own transaction: its writes, the jobs it enqueues and its completion commit as one."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import psycopg

from holdfast.app.job import Job, Transaction
from holdfast.app.signature import json_text
from holdfast.errors import InputInvalid, LeaseLost, PayloadTooLarge
from holdfast.model.outcome import Complete
from holdfast.store import attempts
from holdfast.store.attempts import Ended
from holdfast.store.database import Connection, Database, DatabaseConfig
from holdfast.store.foreign import run_on_psycopg
from holdfast.worker.running import Running

MAX_RESULT_BYTES = 1024 * 1024


def result_text(kind: str, result: Any) -> str | None:
    """Return a handler's result as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
    if result is None:
        return None
    text = json_text(
        result, lambda problem: InputInvalid(f"the result of {kind!r} cannot be stored: {problem}")
    )
    if (size := len(text.encode())) > MAX_RESULT_BYTES:
        raise PayloadTooLarge(f"the result of {kind!r}", size=size, limit=MAX_RESULT_BYTES)
    return text


def _completion(job: Job, running: Running) -> Ended:
    return Ended(running.fence, Complete(result_text(job.kind, job.result)), time.monotonic() - running.began)


class LoopTransaction(Transaction):
    """``async with``: gives an asyncpg connection inside a transaction."""

    def __init__(self, job: Job, running: Running, database: Database) -> None:
        self._job, self._running, self._database = job, running, database
        self._inner: AbstractAsyncContextManager[Connection] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Any:
        msg = "in an async handler write `async with job.transaction() as connection`"
        raise InputInvalid(msg)

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> Connection:
        self._inner = self._database.transaction()
        self._connection = await self._inner.__aenter__()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._inner is not None  # noqa: S101 - entered before it is left
        if kind is not None:
            return await self._inner.__aexit__(kind, error, trace)
        try:
            statement = attempts.finish_jobs([_completion(self._job, self._running)])
            if not await self._database.run(statement, self._connection):
                raise LeaseLost(self._job.id, self._job.attempt)
        except BaseException as refusal:
            await self._inner.__aexit__(type(refusal), refusal, refusal.__traceback__)
            raise
        await self._inner.__aexit__(None, None, None)
        self._running.settled = True
        return None


class ThreadTransaction(Transaction):
    """``with``: gives a psycopg connection inside a transaction, for handlers in threads and processes."""

    def __init__(self, job: Job, running: Running, config: DatabaseConfig) -> None:
        self._job, self._running, self._config = job, running, config
        self._connection: psycopg.Connection[Any] | None = None

    async def __aenter__(self) -> Any:
        msg = "in a sync handler write `with job.transaction() as connection`"
        raise InputInvalid(msg)

    async def __aexit__(self, *_: object) -> None:
        return None

    def __enter__(self) -> psycopg.Connection[Any]:
        self._connection = psycopg.connect(
            self._config.dsn, application_name=f"{self._config.application_name} job", prepare_threshold=None
        )
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None  # noqa: S101 - entered before it is left
        with self._connection as connection:
            if kind is not None:
                connection.rollback()
                return
            statement = attempts.finish_jobs([_completion(self._job, self._running)])
            if not run_on_psycopg(connection, statement, self._config.schema):
                connection.rollback()
                raise LeaseLost(self._job.id, self._job.attempt)
        self._running.settled = True
