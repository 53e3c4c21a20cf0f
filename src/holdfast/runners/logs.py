"""Takes in what runners log: bytes at their offsets, checked, bounded and fenced."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from holdfast.errors import (
    InputInvalid,
    LogOffsetWrong,
    LogRefused,
    OptionInvalid,
    PayloadTooLarge,
)
from holdfast.runners.ends import stale
from holdfast.runners.packing import unpacked
from holdfast.store import log_chunks
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database
from holdfast.store.log_chunks import (
    Appended,
    Arrival,
    LogChunk,
    LogLimits,
    LogStream,
    Piece,
    StreamKey,
    Verdict,
)

STREAMS = ("stdout", "stderr", "system")
LARGEST_BODY = 4 * 1024 * 1024
LARGEST_GAP = 2**40
PAGE = 4 * 1024 * 1024
LARGE = 128 * 1024
# So many small pieces are written by one statement, which is then 8 MiB at most.
MOST_AT_ONCE = 64
# A piece that does not fit is shortened and sent again, more often only where others log for the same job.
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class LogPatch:
    """What one request brings: *body* at *offset*, or a *gap* of so many bytes that the runner dropped."""

    offset: int
    body: bytes
    packed: bool = False
    gap: int = 0


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a stream goes on; from *cut_at* on, where the limit of its job lay, nothing is kept.

    *cancelling* says that the job was asked to stop.
    """

    size: int
    cut_at: int | None = None
    cancelling: bool = False


@dataclass(frozen=True, slots=True)
class LogTotal:
    """What a runner says of a whole stream: its *size* and, in hex, the *sha256* of all that it sent.

    *gap* says that what the server lacks is lost.  Gaps, and what came after a cut, are not part of the sum.
    """

    size: int
    sha256: str
    gap: bool = False


class LogIntake:
    """Writes what runners send, for as long as they hold the attempt and a while after they ended it."""

    def __init__(self, database: Database, limits: LogLimits | None = None) -> None:
        self._database, self.limits = database, limits or LogLimits()
        self._batcher = Batcher(self._append_batch)

    async def append(self, key: StreamKey, patch: LogPatch) -> LogPlace:
        """Append to a stream; bytes that are there already are compared and passed over.

        Raises `AssignmentStale`, `LogOffsetWrong` where the patch begins behind the end of the stream,
        `LogRefused` where it contradicts it, `PayloadTooLarge`, `InputInvalid`.
        """
        piece, is_last = await _piece(key, patch), False
        for _ in range(ROUNDS):
            appended = await self._store(Arrival(key, piece, is_last))
            if appended is None:
                raise await stale(self._database, key.fence)
            rest = await self._rest(key, piece, appended)
            if rest is None:
                return LogPlace(appended.size, appended.cut_at, appended.cancelling)
            piece, is_last = rest, appended.verdict is Verdict.FULL
        raise LogOffsetWrong(key.stream, offset=piece.byte_offset, size=patch.offset)

    async def _store(self, arrival: Arrival) -> Appended | None:
        # Small pieces share a transaction: it is what they cost.  Large ones do not wait for each other.
        if len(arrival.piece.data or b"") < LARGE:
            return await self._batcher.submit(arrival)
        [answer] = await self._database.run(log_chunks.append_chunks([arrival], self.limits))
        return answer

    async def _append_batch(self, arrivals: Sequence[Arrival]) -> Sequence[Appended | None]:
        answers: list[Appended | None] = []
        for start in range(0, len(arrivals), MOST_AT_ONCE):
            statement = log_chunks.append_chunks(arrivals[start : start + MOST_AT_ONCE], self.limits)
            some = await self._database.run(statement)
            answers += some
        return answers

    async def _rest(self, key: StreamKey, piece: Piece, appended: Appended) -> Piece | None:
        """Return what of *piece* is to be sent again after that answer."""
        match appended.verdict:
            case Verdict.FULL:
                return _head(piece, appended.room)
            case Verdict.OFFSET:
                return await self._unknown_part(key, piece, appended)
            case Verdict.CLOSED if piece.length:
                raise LogRefused(key.stream, "was closed and gets longer all the same", size=appended.size)
        return None

    async def close(self, key: StreamKey, total: LogTotal) -> LogPlace:
        """Close a stream, once all of it is here, and remember whether it is what the runner wrote.

        Safe to repeat.  Raises `AssignmentStale`, and `LogOffsetWrong` where bytes are missing that are
        not lost.
        """
        known = await self._stream(key)
        sha256 = _digest(total)
        place = await self.append(key, LogPatch(offset=0 if known is None else known.size, body=b""))
        if (
            known is not None
            and known.closed_at is not None
            and (known.total, known.sha256) == (total.size, sha256)
        ):
            # Said before: to add it all up again would let a runner keep us busy by repeating itself.
            return place
        lacking = 0 if place.cut_at is not None else total.size - place.size
        if lacking > 0:
            if not total.gap:
                raise LogOffsetWrong(key.stream, offset=total.size, size=place.size)
            place = await self.append(key, LogPatch(offset=place.size, body=b"", gap=lacking))
        is_intact = lacking >= 0 and sha256 == await self._sum(key)
        # A runner that gives up the rest may not know how much of it has arrived.
        intact = None if total.gap and lacking >= 0 and not is_intact else is_intact
        closing = log_chunks.close_stream(
            key, total=total.size, sha256=sha256, intact=intact, late_seconds=self.limits.late_seconds
        )
        if not await self._database.run(closing):
            raise await stale(self._database, key.fence)
        return place

    async def _stream(self, key: StreamKey) -> LogStream | None:
        streams = await self._database.run(log_chunks.job_streams(*key.fence))
        return next((one for one in streams if one.stream == key.stream), None)

    async def _unknown_part(self, key: StreamKey, piece: Piece, appended: Appended) -> Piece | None:
        """Return the part of *piece* that the stream lacks, after comparing what it has."""
        if piece.byte_offset > appended.size:
            raise LogOffsetWrong(key.stream, offset=piece.byte_offset, size=appended.size)
        known = min(piece.end, appended.size)
        if piece.data is not None:
            await self._compare(key, piece, known)
        return _tail(piece, known) if known < piece.end else None

    async def _compare(self, key: StreamKey, piece: Piece, end: int) -> None:
        content = piece.content()
        async for chunk in self._chunks(key, piece.byte_offset):
            if chunk.piece.byte_offset >= end:
                return
            # What was told as a gap stays one, whatever comes for it later.
            if chunk.piece.data is not None:
                first, last = max(chunk.piece.byte_offset, piece.byte_offset), min(chunk.piece.end, end)
                mine = content[first - piece.byte_offset : last - piece.byte_offset]
                stored = chunk.piece.content()
                if mine != stored[first - chunk.piece.byte_offset : last - chunk.piece.byte_offset]:
                    problem = f"has other bytes between {first} and {last} already"
                    raise LogRefused(key.stream, problem, size=end)

    async def _sum(self, key: StreamKey) -> bytes:
        digest = hashlib.sha256()
        async for chunk in self._chunks(key, 0):
            digest.update(chunk.piece.content())
        return digest.digest()

    async def _chunks(self, key: StreamKey, start: int) -> AsyncIterator[LogChunk]:
        while page := await self._database.run(
            log_chunks.read_chunks(key.fence, key.stream, start=start, most=PAGE)
        ):
            for chunk in page:
                yield chunk
            start = page[-1].piece.end


async def _piece(key: StreamKey, patch: LogPatch) -> Piece:
    if key.stream not in STREAMS:
        raise OptionInvalid("stream", key.stream, f"use one of {', '.join(STREAMS)}")
    if not 0 <= patch.offset <= LARGEST_GAP or not 0 <= patch.gap <= LARGEST_GAP:
        raise OptionInvalid(
            "offset", max(patch.offset, patch.gap), "give a whole number of bytes up to 2**40"
        )
    if patch.gap:
        if patch.body:
            msg = "a gap stands for bytes that are lost: it comes without a body"
            raise InputInvalid(msg)
        return Piece(patch.offset, patch.gap, None)
    if len(patch.body) > LARGEST_BODY:
        raise PayloadTooLarge("a piece of a log", size=len(patch.body), limit=LARGEST_BODY)
    content = await unpacked(patch.body, LARGEST_BODY) if patch.packed and patch.body else patch.body
    # Packed bytes are kept as they came: less to write, nothing to pack again.
    if len(content) > len(patch.body):
        return Piece(patch.offset, len(content), patch.body, packed=True)
    return Piece(patch.offset, len(content), content)


def _head(piece: Piece, length: int) -> Piece:
    return replace(piece, length=length, data=piece.content()[:length], packed=False)


def _tail(piece: Piece, start: int) -> Piece:
    if piece.data is None:
        return Piece(start, piece.end - start, None)
    content = piece.content()[start - piece.byte_offset :]
    return Piece(start, len(content), content)


def _digest(total: LogTotal) -> bytes:
    try:
        digest = bytes.fromhex(total.sha256)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise OptionInvalid("sha256", total.sha256, "give 64 hexadecimal digits")
    return digest
