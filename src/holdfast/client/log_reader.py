"""Reads the logs of jobs: lines of handlers, and the bytes that runners sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.client.log_sheet import LogSheet
from holdfast.errors import JobNotFound
from holdfast.model.log import BEGINNING, LogMark
from holdfast.store import jobs, log_chunks, logs
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.log_chunks import LogChunk, LogStream, Piece
from holdfast.store.logs import LogLine

PAGE = 1000
PAGE_BYTES = 1024 * 1024
TAIL_BYTES = 8 * 1024 * 1024
# Behind a line without an end so many pages are read anew each time; then it is told as far as it has come.
MOST_PAGES = 4


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines in order; *mark* is behind them, *ended* says that the job writes no more."""

    lines: Sequence[LogLine]
    ended: bool
    mark: LogMark


@dataclass(frozen=True, slots=True)
class LogNews:
    """What a job has logged since a mark, as it came; *mark* is behind it."""

    lines: Sequence[LogLine]
    chunks: Sequence[LogChunk]
    mark: LogMark


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A range of a stream: *data* from *start* on, or *gap* bytes that are lost; *end* is behind it."""

    start: int
    data: bytes
    gap: int
    end: int
    stream: LogStream


class LogReader:
    """Reads what jobs have logged; holds no more than a page."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def streams(self, job_id: int, attempt: int | None = None) -> Sequence[LogStream]:
        """Return how the streams of a job stand that runners sent."""
        return await self._database.run(log_chunks.job_streams(job_id, attempt))

    async def streams_of(self, job_id: int) -> Sequence[LogStream]:
        """Return the streams of a job; raises `JobNotFound`."""
        found = await self.streams(job_id)
        if not found and await self._database.run(jobs.job_end(job_id)) is None:
            raise JobNotFound(job_id)
        return found

    async def span(self, fence: Fence, name: str, start: int = 0, most: int = PAGE_BYTES) -> LogSpan | None:
        """Return up to *most* bytes of a stream from byte *start* on, as far as the next gap.

        Only a span that begins in a gap tells it.  None: the attempt has no such stream.
        """
        found = await self._database.run(log_chunks.job_streams(*fence))
        stream = next((one for one in found if one.stream == name), None)
        if stream is None:
            return None
        page = await self._database.run(log_chunks.read_chunks(fence, name, start=start, most=most))
        pieces = [chunk.piece for chunk in page]
        data = b"".join(_joined(pieces, start))[:most]
        gap = 0 if data else _gap(pieces, start, stream.size)
        return LogSpan(start, data, gap, start + len(data) + gap, stream)

    async def news(self, job_id: int, after: LogMark = BEGINNING, *, attempt: int | None = None) -> LogNews:
        """Return what came after a mark, about a page of it."""
        place = (after.attempt, after.byte_offset)
        lines = await self._database.run(logs.follow_logs(job_id, place, attempt=attempt, limit=PAGE))
        following = log_chunks.follow_chunks(job_id, after.piece, attempt=attempt, most=PAGE_BYTES)
        chunks = await self._database.run(following)
        mark = after
        if lines:
            mark = replace(mark, attempt=lines[-1].fence.attempt, byte_offset=lines[-1].byte_offset)
        if chunks:
            mark = replace(mark, piece=chunks[-1].id)
        return LogNews(lines, chunks, mark)

    async def page(self, job_id: int, after: LogMark = BEGINNING, *, attempt: int | None = None) -> LogPage:
        """Return the next lines after a mark, of one attempt or of all; raises `JobNotFound`.

        A line of a runner that has no end yet is kept for a later page, until the job has ended.
        """
        # Asked before the lines are read: what the last attempt logs is there before the job has ended.
        end = await self._database.run(jobs.job_end(job_id))
        if end is None:
            raise JobNotFound(job_id)
        sheet, mark, lines = LogSheet(job_id, after), after, list[LogLine]()
        for _ in range(MOST_PAGES):
            news = await self.news(job_id, mark, attempt=attempt)
            lines = [*news.lines, *(line for chunk in news.chunks for line in sheet.lines(chunk))]
            mark = news.mark
            if lines or not news.chunks:
                break
        if not lines and (end.state.is_final or news.chunks):
            # What has no end yet has one now: nothing more comes, or too much of other streams behind it.
            return LogPage(sheet.rest(), end.state.is_final, mark)
        mark = sheet.mark(mark)
        return LogPage(lines, end.state.is_final, mark)

    async def last(self, job_id: int, limit: int, *, attempt: int | None = None) -> LogPage:
        """Return the last lines of a job in order; raises `JobNotFound`."""
        end = await self._database.run(jobs.job_end(job_id))
        if end is None:
            raise JobNotFound(job_id)
        lines = (await self._database.run(logs.last_logs(job_id, attempt=attempt, limit=limit)))[::-1]
        last = log_chunks.last_chunks(job_id, attempt=attempt, most=TAIL_BYTES)
        sheet, mark = LogSheet(job_id, BEGINNING), BEGINNING
        if lines:
            mark = replace(mark, attempt=lines[-1].fence.attempt, byte_offset=lines[-1].byte_offset)
        for chunk in (await self._database.run(last))[::-1]:
            lines += sheet.lines(chunk)
            mark = replace(mark, piece=chunk.id)
        if end.state.is_final:
            # What has no end yet is told now, so the mark is behind it.
            lines += sheet.rest()
        else:
            mark = sheet.mark(mark)
        return LogPage(lines[max(0, len(lines) - limit) :], end.state.is_final, mark)


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
