"""Pours JSON lines into the queue, and keeps the account of what became of them."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.cli.lines import LONGEST_LINE, Batch, LineReader
from holdfast.cli.output import counted, print_json, tell
from holdfast.cli.progress import counting
from holdfast.client.intake import Intake, job_text
from holdfast.errors import (
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InputInvalid,
    LineInvalid,
    ServerUnavailable,
    UnknownKind,
)
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import bulk
from holdfast.store.database import Connection, Database, own_errors

if TYPE_CHECKING:
    from holdfast.client.remote.operator import RemoteOperator

BATCH = 5000
# So many bytes of JSON go to a service at once; it takes four times as many.
LARGEST_REQUEST = 8 * 1024 * 1024

Numbered = list[tuple[int, NewJob]]

# After these what was sent may have been done, and only its answer not have come.
UNHEARD = (DatabaseUnavailable, ServerUnavailable, asyncio.CancelledError)
LOOK = "may be enqueued{}: look with `holdfast jobs list` before you send them again"
KEYS = "a line with a unique_key makes no second job while its first one lives"


class Funnel(Protocol):
    """Where batches of jobs go in."""

    def parts(self, numbered: Numbered) -> Iterator[Numbered]:
        """Split a batch into what goes in at once."""

    async def put(self, rows: list[NewJob]) -> list[JobHandle]:
        """Enqueue *rows*, all or none."""


@dataclass(slots=True)
class Pouring:
    """One stream of lines on its way into the database.

    It stops at the first bad line unless *skip_bad*; *atomic* enqueues all lines or none.
    """

    intake: Intake
    skip_bad: bool
    atomic: bool
    bad: list[LineInvalid] = field(default_factory=list)
    _statuses: Counter[str] = field(default_factory=Counter)
    # None once COMMIT is sent, until its answer is there.
    _kept: bool | None = True
    _began: float = field(default_factory=time.monotonic)

    async def pour_locally(self, database: Database) -> None:
        """Enqueue everything that stdin has to say on *database*; raises `LineInvalid`."""
        if not self.atomic:
            await self._pour(_Funnel(database))
            return
        self._kept = False
        try:
            async with database.transaction() as connection:
                await self._pour(_Funnel(database, connection))
                self._kept = None if self._statuses else False
        except UNHEARD:
            if self._kept is None:
                lines = "the line" if (total := self._statuses.total()) == 1 else f"all {total:,} lines"
                tell(f"holdfast: {lines} {LOOK.format(', or none')}; {KEYS}", err=True)
            raise
        except HoldfastError:
            # The whole was refused, be it by what is checked at its end.
            self._kept = False
            raise
        self._kept = True

    async def pour_remotely(self, operator: RemoteOperator) -> None:
        """Enqueue everything that stdin has to say by way of a service; raises `LineInvalid`."""
        await self._pour(_RemoteFunnel(operator))

    def report(self, as_json: bool) -> None:
        """Print what became of the lines; no number where nobody knows it."""
        done = self._statuses if self._kept else Counter[str]()
        if as_json:
            bad = [{"line": one.line, "problem": one.problem} for one in self.bad]
            counts = {
                status: None if self._kept is None else done[status] for status in ("new", "kept", "replaced")
            }
            print_json(counts | {"bad": bad})
            return
        if self._kept is None:
            return
        others = "".join(f", {done[status]:,} {status}" for status in ("kept", "replaced") if done[status])
        skipped = f", {counted(len(self.bad), 'bad line')} skipped" if self.bad else ""
        seconds = time.monotonic() - self._began
        tell(f"{counted(done['new'], 'job')} enqueued{others}{skipped} in {seconds:.1f} s")

    async def _pour(self, funnel: Funnel) -> None:
        descriptor = sys.stdin.fileno()
        reader = LineReader(descriptor, BATCH)
        with counting("enqueue", _size(descriptor)) as progress:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    await self._put(funnel, await self._read(funnel, batch))
                    progress(reader.bytes_read)

    async def _read(self, funnel: Funnel, batch: Batch) -> Numbered:
        numbered: Numbered = []
        for number, line in batch:
            try:
                if len(line) > LONGEST_LINE:
                    msg = f"it has more than {LONGEST_LINE:,} bytes"
                    raise InputInvalid(msg)
                numbered.append((number, self.intake.read(line)))
            except (InputInvalid, UnknownKind) as error:
                if not self.skip_bad:
                    await self._put(funnel, numbered)
                self._refuse(number, str(error))
        return numbered

    async def _put(self, funnel: Funnel, numbered: Numbered) -> None:
        for part in funnel.parts(numbered):
            await self._put_part(funnel, part)

    async def _put_part(self, funnel: Funnel, part: Numbered) -> None:
        """Enqueue what goes in at once and enter it in the account: of that nothing is sent again."""
        try:
            handles = await self._sent(funnel, part)
        except (DuplicateJob, InputInvalid, UnknownKind) as error:
            if len(part) == 1:
                self._refuse(part[0][0], str(error))
                return
            # One of them spoils the others: they go in by halves, those before it first.
            middle = len(part) // 2
            await self._put_part(funnel, part[:middle])
            await self._put_part(funnel, part[middle:])
            return
        self._statuses.update(handle.status for handle in handles)

    async def _sent(self, funnel: Funnel, part: Numbered) -> list[JobHandle]:
        try:
            return await funnel.put([job for _, job in part])
        except (DuplicateJob, InputInvalid, UnknownKind):
            raise
        except (HoldfastError, asyncio.CancelledError) as error:
            if reached := "" if self.atomic else "; ".join(self._reached(part, error)):
                tell(f"holdfast: {reached}", err=True)
            raise

    def _reached(self, part: Numbered, error: BaseException) -> Iterator[str]:
        """Say which lines are enqueued where *part* came to *error*, and which of them may be."""
        (first, _), (last, _) = part[0], part[-1]
        if self._statuses:
            yield f"what stands before line {first} is enqueued"
        if isinstance(error, UNHEARD):
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            yield f"{lines} {LOOK.format(' too')}"
            yield KEYS

    def _refuse(self, number: int, problem: str) -> None:
        rest = "nothing is enqueued" if self.atomic else "what stands before it is enqueued, nothing after it"
        error = LineInvalid(number, problem, None if self.skip_bad else rest)
        if not self.skip_bad:
            raise error
        self.bad.append(error)
        tell(f"holdfast: {error}", err=True)


@dataclass(frozen=True, slots=True)
class _RemoteFunnel:
    """Puts jobs in by way of a service: what one request takes at once."""

    operator: RemoteOperator

    def parts(self, numbered: Numbered) -> Iterator[Numbered]:
        part: Numbered = []
        size = 0
        for number, job in numbered:
            length = len(msgspec.json.encode(job_text(job)))
            if part and size + length > LARGEST_REQUEST:
                yield part
                part, size = [], 0
            part.append((number, job))
            size += length
        if part:
            yield part

    async def put(self, rows: list[NewJob]) -> list[JobHandle]:
        return await self.operator.jobs.enqueue([job_text(row) for row in rows])


@dataclass(frozen=True, slots=True)
class _Funnel:
    """Puts batches in, each in a transaction of its own or in a part of the one that *outer* is in."""

    database: Database
    outer: Connection | None = None

    def parts(self, numbered: Numbered) -> Iterator[Numbered]:
        if numbered:
            yield numbered

    async def put(self, rows: list[NewJob]) -> list[JobHandle]:
        if self.outer is not None:
            # A part that is refused must not spoil the whole before we know which line it was.
            with own_errors(self.database.schema):
                async with self.outer.transaction():
                    return await bulk.put_jobs(self.outer, self.database.schema, rows)
        async with self.database.transaction() as own:
            return await bulk.put_jobs(own, self.database.schema, rows)


def _size(descriptor: int) -> float | None:
    """Return how many bytes there are to come, where that is known."""
    found = os.fstat(descriptor)
    return float(found.st_size) if stat.S_ISREG(found.st_mode) else None
