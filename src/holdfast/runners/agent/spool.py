"""Keeps what a program says on disk until the server has it, within a bound."""

from __future__ import annotations

import hashlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SEGMENT = 1024 * 1024


@dataclass(slots=True)
class Segment:
    """A file with the bytes of a stream from *start* to *end*."""

    path: Path
    start: int
    end: int


class Budget:
    """The *bytes* that the streams of one assignment may keep together.

    The largest makes room: a few lines of a quiet stream outlive the flood of another one.
    """

    def __init__(self, most: int) -> None:
        self.bytes = most
        self._spools: list[Spool] = []

    def share(self, spool: Spool) -> None:
        """Let a stream take part."""
        self._spools.append(spool)

    def keep(self) -> None:
        """Drop what is too much."""
        while sum(spool.kept for spool in self._spools) > self.bytes:
            max(self._spools, key=lambda spool: spool.kept).drop_oldest()


class Spool:
    """The bytes of one stream that the server does not have yet.

    Offsets count from the stream's beginning, dropped bytes included.  Where more wait than the *budget*
    allows, or the disk is full, the oldest are dropped: what `lost` answers then is marked as a gap.
    """

    def __init__(self, folder: Path, stream: str, budget: Budget, *, segment: int = SEGMENT) -> None:
        self._folder, self._stream = folder, stream
        self._budget, self._segment = budget, min(segment, max(1, budget.bytes // 4))
        budget.share(self)
        self._segments: deque[Segment] = deque()
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self.size = self.acknowledged = 0
        # True if the sum may lack bytes that the server has: they were dropped before it answered.
        self.is_unsure = False
        self._sent = 0

    @property
    def is_empty(self) -> bool:
        """True if the server has everything."""
        return self.acknowledged >= self.size

    @property
    def sha256(self) -> str:
        """The sum of what the server has accepted, in hex; gaps are no part of it."""
        return self._digest.hexdigest()

    @property
    def kept(self) -> int:
        """How many bytes are on disk."""
        return self.size - self._segments[0].start if self._segments else 0

    @property
    def lost(self) -> int:
        """How many bytes were dropped right after what the server has."""
        start = self._segments[0].start if self._segments else self.size
        return max(0, start - self.acknowledged)

    def append(self, data: bytes) -> None:
        """Add to the end of the stream."""
        end = self.size + len(data)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._write(rest) :]
        except OSError:
            # A full disk must not stop the program; the gap tells.
            self._drop_all()
            self.size = end
        self._budget.keep()

    def _write(self, data: memoryview) -> int:
        """Write what the last piece has room for, or a new one where it is full; answers how much."""
        last = self._segments[-1] if self._segments else None
        if last is None or self._file is None or last.end - last.start >= self._segment:
            self._close()
            path = self._folder / f"{self._stream}.{self.size}"
            self._file = path.open("wb")
            last = Segment(path, self.size, self.size)
            self._segments.append(last)
        fitting = data[: self._segment - (last.end - last.start)]
        self._file.write(fitting)
        self._file.flush()
        last.end += len(fitting)
        self.size = last.end
        return len(fitting)

    def read(self, most: int) -> bytes:
        """Return the next bytes that the server needs, *most* at most; none where they are lost."""
        if self.lost:
            return b""
        data = self._between(self.acknowledged, self.acknowledged + most)
        self._sent = max(self._sent, self.acknowledged + len(data))
        return data

    def _between(self, start: int, end: int) -> bytes:
        pieces: list[bytes] = []
        # In a thread: what is dropped meanwhile ends the piece, for what follows must not take its place.
        with suppress(FileNotFoundError):
            for segment in tuple(self._segments):
                if segment.start > start:
                    break
                last = min(end, segment.end)
                if start < last:
                    with segment.path.open("rb") as file:
                        file.seek(start - segment.start)
                        pieces.append(file.read(last - start))
                    start = last
        return b"".join(pieces)

    def acknowledge(self, offset: int, sent: bytes = b"") -> None:
        """Note that the server has everything before *offset*, or knows it as lost.

        *sent* are the bytes of the request that it answers: they may have been dropped meanwhile.  Without
        them it answers a gap.
        """
        self.is_unsure = self.is_unsure or (not sent and self.acknowledged < self._sent)
        known = sent[: max(0, offset - self.acknowledged)]
        self._digest.update(known)
        self._digest.update(self._between(self.acknowledged + len(known), offset))
        self.acknowledged = max(self.acknowledged, min(offset, self.size))
        while self._segments and self._segments[0].end <= self.acknowledged:
            self.drop_oldest()

    def give_up(self) -> None:
        """Drop what waits: nobody wants it, so it counts neither as sent nor as lost."""
        self._drop_all()
        self.acknowledged = self.size

    def drop_oldest(self) -> None:
        """Drop the oldest piece that is on disk."""
        first = self._segments.popleft()
        if not self._segments:
            self._close()
        with suppress(OSError):
            first.path.unlink()

    def _drop_all(self) -> None:
        while self._segments:
            self.drop_oldest()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
