"""Reads the logs of jobs: lines of handlers, and the bytes that runners sent."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.errors import JobNotFound
from holdfast.rules.lines import LineCutter
from holdfast.store import jobs, log_chunks, logs
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.log_chunks import LogChunk, LogStream, Piece
from holdfast.store.logs import LogLine

PAGE = 1000
PAGE_BYTES = 1024 * 1024
TAIL_BYTES = 8 * 1024 * 1024
LOOK_EVERY = 0.5

Rest = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class LogMark:
    """How far the logs of a job were read: its handlers' by attempt and byte, its runners' by piece."""

    attempt: int = 0
    byte_offset: int = -1
    piece: int = 0


BEGINNING = LogMark()


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A range of a stream: *data* from *start* on, then *gap* bytes that are lost, then *end*."""

    start: int
    data: bytes
    gap: int
    end: int
    stream: LogStream


async def _nap() -> None:
    await asyncio.sleep(LOOK_EVERY)


class LogReader:
    """Reads what jobs have logged; holds no more than a page."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def streams(self, job_id: int, attempt: int | None = None) -> Sequence[LogStream]:
        """Return how the streams of a job stand that runners sent."""
        return await self._database.run(log_chunks.job_streams(job_id, attempt))

    async def span(self, fence: Fence, name: str, start: int = 0, most: int = PAGE_BYTES) -> LogSpan | None:
        """Return up to *most* bytes of a stream from byte *start* on, as far as the next gap.

        Only a span that begins in a gap tells it.  None: the attempt has no such stream.
        """
        found = await self._database.run(log_chunks.job_streams(*fence))
        stream = next((one for one in found if one.stream == name), None)
        if stream is None:
            return None
        page = await self._database.run(log_chunks.read_chunks(fence, name, start=start, most=most))
        data = b"".join(_joined([chunk.piece for chunk in page], start))[:most]
        gap = 0 if data else _gap([chunk.piece for chunk in page], start, stream.size)
        return LogSpan(start, data, gap, start + len(data) + gap, stream)

    async def follow(
        self,
        job_id: int,
        mark: LogMark = BEGINNING,
        *,
        attempt: int | None = None,
        rest: Rest | None = _nap,
    ) -> AsyncIterator[tuple[LogMark, LogLine | LogChunk]]:
        """Give what a job has logged after *mark*, each with the mark behind it.

        It goes on until the job has ended, resting by *rest* where there is nothing new; with None it
        does not wait for more.  Raises `JobNotFound`.
        """
        while True:
            # Asked before the lines are read: what the last attempt logs is there before the job has ended.
            end = await self._database.run(jobs.job_end(job_id))
            if end is None:
                raise JobNotFound(job_id)
            before = mark
            async for mark, found in self._news(job_id, before, attempt):
                yield mark, found
            if rest is None or (end.state.is_final and mark == before):
                return
            if mark == before:
                await rest()

    async def _news(
        self, job_id: int, mark: LogMark, attempt: int | None
    ) -> AsyncIterator[tuple[LogMark, LogLine | LogChunk]]:
        while lines := await self._database.run(
            logs.follow_logs(job_id, (mark.attempt, mark.byte_offset), attempt=attempt, limit=PAGE)
        ):
            for line in lines:
                mark = replace(mark, attempt=line.fence.attempt, byte_offset=line.byte_offset)
                yield mark, line
        while chunks := await self._database.run(
            log_chunks.follow_chunks(job_id, mark.piece, attempt=attempt, most=PAGE_BYTES)
        ):
            for chunk in chunks:
                mark = replace(mark, piece=chunk.id)
                yield mark, chunk

    async def last(
        self, job_id: int, limit: int, *, attempt: int | None = None
    ) -> tuple[LogMark, Sequence[LogLine]]:
        """Return the last lines of a job in order, and the mark behind them."""
        lines = (await self._database.run(logs.last_logs(job_id, attempt=attempt, limit=limit)))[::-1]
        most = TAIL_BYTES
        chunks = (await self._database.run(log_chunks.last_chunks(job_id, attempt=attempt, most=most)))[::-1]
        mark = LogMark(*(lines[-1].fence.attempt, lines[-1].byte_offset) if lines else (0, -1))
        sheet = LogSheet(job_id)
        cut = [line for chunk in chunks for line in sheet.lines(chunk)] + sheet.rest()
        both = [*lines, *cut]
        return replace(mark, piece=chunks[-1].id if chunks else 0), both[max(0, len(both) - limit) :]


def _joined(pieces: Sequence[Piece], start: int) -> Iterator[bytes]:
    """Give the bytes from *start* on, until some are missing: a told gap, or pruned with their day."""
    for piece in pieces:
        if piece.data is None or piece.byte_offset > start:
            return
        yield piece.content()[start - piece.byte_offset :]
        start = piece.end


def _gap(pieces: Sequence[Piece], start: int, size: int) -> int:
    known = (piece.byte_offset for piece in pieces if piece.data is not None)
    # A page without bytes is not the end of the gap, but as far as one can see.
    end = next(known, pieces[-1].end if pieces else size)
    return max(0, min(end, size) - start)


class LogSheet:
    """Turns pieces of a job's streams into lines, whose level is the name of their stream."""

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self._cutters: dict[tuple[int, str], LineCutter] = defaultdict(LineCutter)
        self._last: dict[tuple[int, str], LogChunk] = {}

    def lines(self, chunk: LogChunk) -> list[LogLine]:
        """Return the lines that end in this piece; a gap is a line that says so."""
        key = (chunk.attempt, chunk.stream)
        self._last[key] = chunk
        if chunk.piece.data is None:
            told = f"… {chunk.piece.length:,} bytes are missing here …"
            return [*self._flush(key), self._line(chunk, chunk.piece.byte_offset, told)]
        cut = self._cutters[key].cut(chunk.piece.byte_offset, chunk.piece.content())
        return [self._line(chunk, line.byte_offset, line.text) for line in cut]

    def rest(self) -> list[LogLine]:
        """Return the last lines of the streams, which have no end."""
        return [line for key in list(self._cutters) for line in self._flush(key)]

    def cuts(self, streams: Sequence[LogStream]) -> list[LogLine]:
        """Return a line for each stream that was cut off or is not what its runner wrote."""
        told = []
        for one in streams:
            fence = Fence(self._job_id, one.attempt)
            if one.cut_at is not None:
                text = "… log cut here: the job may log no more …"
                told.append(LogLine(fence, one.cut_at, one.written_at, one.stream, text))
            if one.intact is False:
                text = "… this log is not what its runner wrote: their sums differ …"
                told.append(LogLine(fence, one.size, one.closed_at or one.written_at, one.stream, text))
        return told

    def _flush(self, key: tuple[int, str]) -> list[LogLine]:
        chunk = self._last[key]
        return [self._line(chunk, line.byte_offset, line.text) for line in self._cutters[key].flush()]

    def _line(self, chunk: LogChunk, byte_offset: int, text: str) -> LogLine:
        return LogLine(Fence(self._job_id, chunk.attempt), byte_offset, chunk.at, chunk.stream, text)
