"""Statements about the logs that runners send: pieces of streams, at their byte offsets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, is_any

_SQL = blocks("log_chunks")
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class StreamKey:
    """One stream of one attempt, and the worker that writes it."""

    fence: Fence
    stream: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class Piece:
    """*length* bytes from *byte_offset* on; *packed* ones are gzip.

    No *data* is a gap, and one of no length is where the stream was cut off.
    """

    byte_offset: int
    length: int
    data: bytes | None
    packed: bool = False

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.byte_offset + self.length

    def content(self) -> bytes:
        """Its bytes, unpacked; a gap has none."""
        if self.data is None:
            return b""
        return zlib.decompress(self.data, _GZIP) if self.packed else self.data


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A stored piece; *id* grows in the order in which the pieces of a job came."""

    id: int
    attempt: int
    stream: str
    piece: Piece
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """How much one job may log, and how much of it after its attempt has ended; in bytes and seconds."""

    job: int = 64 * 1024 * 1024
    late_bytes: int = 4 * 1024 * 1024
    late_seconds: float = 600.0


class Verdict(StrEnum):
    """What appending a piece came to; see ``holdfast.append_chunk``."""

    WRITTEN = "written"
    OFFSET = "offset"
    FULL = "full"
    CUT = "cut"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to a piece: the stream has *size* bytes now, the job *room* for more.

    *cancelling* says that the job was asked to stop.
    """

    verdict: Verdict
    size: int
    room: int
    cut_at: int | None
    cancelling: bool


@dataclass(frozen=True, slots=True)
class LogStream:
    """How a stream stands; *intact* says whether it is what its writer says of it, once it is closed."""

    attempt: int
    stream: str
    size: int
    kept: int
    cut_at: int | None
    opened_at: datetime
    written_at: datetime
    closed_at: datetime | None
    total: int | None
    sha256: bytes | None
    intact: bool | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece that came for a stream; *is_last*: the limit cuts the stream behind it."""

    key: StreamKey
    piece: Piece
    is_last: bool = False


def append_chunks(arrivals: Sequence[Arrival], limits: LogLimits) -> Statement[list[Appended | None]]:
    """Append pieces to streams; answers each in order, with None where the lease was lost."""
    parameters = (
        [one.key.fence.job_id for one in arrivals],
        [one.key.fence.attempt for one in arrivals],
        [one.key.worker_id for one in arrivals],
        [one.key.stream for one in arrivals],
        [one.piece.byte_offset for one in arrivals],
        [one.piece.length for one in arrivals],
        [one.piece.data for one in arrivals],
        [one.piece.packed for one in arrivals],
        [one.is_last for one in arrivals],
        limits.job,
        limits.late_seconds,
        limits.late_bytes,
    )
    return Statement("append_chunks", _SQL["append_chunks"], parameters, partial(_appended, len(arrivals)))


def _appended(count: int, rows: Sequence[Row]) -> list[Appended | None]:
    answers: list[Appended | None] = [None] * count
    for nth, verdict, *rest in rows:
        answers[nth - 1] = Appended(Verdict(verdict), *rest)
    return answers


def close_stream(
    key: StreamKey, *, total: int, sha256: bytes, intact: bool | None, late_seconds: float
) -> Statement[bool]:
    """Close a stream with what its writer says of the whole; False: the lease was lost."""
    parameters = (*key.fence, key.worker_id, key.stream, total, sha256, intact, late_seconds)
    return Statement("close_stream", _SQL["close_stream"], parameters, is_any)


def job_streams(job_id: int, attempt: int | None = None) -> Statement[list[LogStream]]:
    """Find the streams of a job, or of one attempt."""
    return Statement("job_streams", _SQL["job_streams"], (job_id, attempt), _streams)


def _streams(rows: Sequence[Row]) -> list[LogStream]:
    return [LogStream(*row) for row in rows]


def read_chunks(fence: Fence, stream: str, *, start: int, most: int) -> Statement[list[LogChunk]]:
    """Read pieces of a stream from the one that holds byte *start* on, about *most* bytes."""
    return Statement("read_chunks", _SQL["read_chunks"], (*fence, stream, start, most), _chunks)


def follow_chunks(job_id: int, after: int, *, attempt: int | None, most: int) -> Statement[list[LogChunk]]:
    """Read pieces of a job that came after piece *after*, about *most* bytes."""
    return Statement("follow_chunks", _SQL["follow_chunks"], (job_id, after, attempt, most), _chunks)


def last_chunks(job_id: int, *, attempt: int | None, most: int) -> Statement[list[LogChunk]]:
    """Read the last pieces of a job, newest first, about *most* bytes."""
    return Statement("last_chunks", _SQL["last_chunks"], (job_id, attempt, most), _chunks)


def _chunks(rows: Sequence[Row]) -> list[LogChunk]:
    return [
        LogChunk(id, attempt, stream, Piece(byte_offset, length, data, packed), at)
        for id, attempt, stream, byte_offset, length, packed, at, data in rows
    ]


def watch_logs(job_ids: Sequence[int], seconds: float) -> Statement[list[int]]:
    """Have the server notify for *seconds* of what these jobs log; answers those that nobody followed."""
    return Statement("watch_logs", _SQL["watch_logs"], (list(job_ids), seconds), column)
