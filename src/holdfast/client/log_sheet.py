"""Turns what runners sent into lines, page by page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from holdfast.model.log import LogMark
from holdfast.rules.lines import LineCutter
from holdfast.store.attempts import Fence
from holdfast.store.log_chunks import LogChunk
from holdfast.store.logs import LogLine

_Key = tuple[int, str]


class LogSheet:
    """The lines of one page of a job's streams; their level is the name of their stream.

    What an earlier page told of the pieces that follow its mark is left out.
    """

    def __init__(self, job_id: int, after: LogMark) -> None:
        self._job_id = job_id
        self._told = {(attempt, stream): offset for attempt, stream, offset in after.told}
        self._cutters: defaultdict[_Key, LineCutter] = defaultdict(LineCutter)
        self._last: dict[_Key, LogChunk] = {}
        # The piece in which the line begins that has no end yet.
        self._begun: dict[_Key, int] = {}

    def lines(self, chunk: LogChunk) -> list[LogLine]:
        """Return the lines that end in this piece; a gap or a cut is a line that says so."""
        key, piece = (chunk.attempt, chunk.stream), chunk.piece
        self._last[key] = chunk
        told = self._told.get(key, 0)
        if piece.data is None:
            self._told[key] = max(told, piece.end + (not piece.length))
            if told >= self._told[key]:
                return []
            text = f"… {piece.length:,} bytes are missing here …" if piece.length else _CUT
            return [*self._rest(key), self._line(chunk, piece.byte_offset, text)]
        if told >= piece.end:
            return []
        cutter, start = self._cutters[key], max(told, piece.byte_offset)
        lines = cutter.cut(start, piece.content()[start - piece.byte_offset :])
        if cutter.unfinished is not None and cutter.unfinished >= start:
            self._begun[key] = chunk.id
        self._told[key] = piece.end if cutter.unfinished is None else cutter.unfinished
        return [self._line(chunk, line.byte_offset, line.text) for line in lines]

    def mark(self, reached: LogMark) -> LogMark:
        """Return the mark behind what was told: before the first piece with a line that has no end yet."""
        begun = [self._begun[key] for key, cutter in self._cutters.items() if cutter.unfinished is not None]
        if not begun:
            return replace(reached, told=())
        told = ((attempt, stream, offset) for (attempt, stream), offset in sorted(self._told.items()))
        return replace(reached, piece=min(begun) - 1, told=tuple(told))

    def rest(self) -> list[LogLine]:
        """Return the last lines of the streams, which have no end."""
        return [line for key in self._cutters for line in self._rest(key)]

    def _rest(self, key: _Key) -> list[LogLine]:
        if key not in self._cutters:
            return []
        chunk = self._last[key]
        return [self._line(chunk, line.byte_offset, line.text) for line in self._cutters[key].flush()]

    def _line(self, chunk: LogChunk, byte_offset: int, text: str) -> LogLine:
        return LogLine(Fence(self._job_id, chunk.attempt), byte_offset, chunk.at, chunk.stream, text)


_CUT = "… log cut here: the job may log no more …"
