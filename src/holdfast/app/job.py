"""What a handler may do with its own job."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.errors import LeaseLost
from holdfast.model.job import ClaimedJob
from holdfast.rules.progress import told_progress


class Transaction(AbstractContextManager[Any], AbstractAsyncContextManager[Any]):
    """A transaction that ends the job: enter it with ``with`` or, in an async handler, ``async with``."""


class JobPort(Protocol):
    """What stands behind a `Job`: the worker that runs it.

    The methods about checkpoints give a value in a sync handler and an awaitable in an async one.
    """

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress; it is written within a second."""

    def save_checkpoint(self, state: Any, version: int) -> Any:
        """Save the state to go on from."""

    def load_checkpoint(self, version: int) -> Any:
        """Load the saved state, or None."""

    def delete_checkpoint(self) -> Any:
        """Forget the saved state."""

    def transaction(self, job: Job) -> Transaction:
        """Begin a transaction that ends with the job's completion."""


class Job:
    """The job that a handler works on, as an argument of type ``holdfast.Job``.

    *attempt* is the fence: pass it on to systems outside the database that can refuse an older one.
    *failures* counts what went wrong before this attempt.  *cancelled* turns true once the handler should
    stop: a handler in a thread looks at it now and then, others are stopped.  *lost* turns true once another
    attempt may own the job.
    """

    def __init__(self, claimed: ClaimedJob, port: JobPort) -> None:
        self._claimed, self._port = claimed, port
        self.result: Any = None
        self.lost = False
        self.cancelled = False

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"

    @property
    def id(self) -> int:
        """The job's id."""
        return self._claimed.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claimed.attempt

    @property
    def failures(self) -> int:
        """How many attempts failed before this one."""
        return self._claimed.failures

    @property
    def kind(self) -> str:
        """The kind that selected the handler."""
        return self._claimed.kind

    @property
    def queue(self) -> str:
        """The queue it was claimed from."""
        return self._claimed.queue

    @property
    def priority(self) -> int:
        """The priority it was claimed with, 0 is most urgent."""
        return self._claimed.priority

    @property
    def max_attempts(self) -> int:
        """How many attempts may fail before the job does."""
        return self._claimed.max_attempts

    @property
    def trace(self) -> str | None:
        """The trace context given at enqueue, such as a W3C ``traceparent``."""
        return self._claimed.trace

    @property
    def tags(self) -> list[str]:
        """The tags given at enqueue."""
        return self._claimed.tags or []

    @property
    def meta(self) -> Any:
        """The meta data given at enqueue."""
        return msgspec.json.decode(self._claimed.meta)

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued."""
        return self._claimed.enqueued_at

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines are kept with the attempt."""
        facts = {"job_id": self.id, "kind": self.kind, "attempt": self.attempt}
        return logging.LoggerAdapter(logging.getLogger("holdfast.job"), facts)

    def check(self) -> None:
        """Raise `LeaseLost` if another attempt may own the job now.  Long loops in threads call it."""
        if self.lost:
            raise LeaseLost(self.id, self.attempt)

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Say how far the work is, from 0 to 1; written within a second, the newest one wins.

        Raises `OptionInvalid` for what is no number, `LeaseLost`.
        """
        self.check()
        self._port.progress(*told_progress(fraction, note))

    def save_checkpoint(self, state: Any, *, version: int = 1) -> Any:
        """Save what a later attempt needs to go on (JSON data, at most 1 MiB).

        Await it in an async handler.  Raises `LeaseLost`, `PayloadTooLarge`.
        """
        self.check()
        return self._port.save_checkpoint(state, version)

    def load_checkpoint(self, *, version: int = 1) -> Any:
        """Return the saved state, or None where nothing was saved.

        Await it in an async handler.  Raises `StateConflict` for a state of a newer version.
        """
        return self._port.load_checkpoint(version)

    def delete_checkpoint(self) -> Any:
        """Forget the saved state.  Await it in an async handler.  Raises `LeaseLost`."""
        self.check()
        return self._port.delete_checkpoint()

    def transaction(self) -> Transaction:
        """Begin a transaction that commits the handler's writes together with the job's completion.

        It gives a connection: asyncpg's in an async handler (``async with``), psycopg's in a sync one
        (``with``).  When the block ends well the job is completed with ``job.result``, and whatever the
        handler returns afterwards is not used.  Raises `LeaseLost`, and then nothing was committed.
        """
        self.check()
        return self._port.transaction(self)
