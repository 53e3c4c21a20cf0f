"""Cuts bytes that come in pieces into lines of text."""

from __future__ import annotations

from dataclasses import dataclass

# A line without an end is cut here, so that nobody has to hold a stream that never breaks its lines.
LONGEST_LINE = 64 * 1024
# So many bytes UTF-8 takes for a character at most.
LONGEST_CHARACTER = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; *byte_offset* is its place in the stream."""

    byte_offset: int
    text: str


class LineCutter:
    """The lines of one stream, whose pieces come in order.

    What has no line end yet is kept for the next piece.  Bytes that are no UTF-8 are shown as ``\\ufffd``.
    """

    def __init__(self) -> None:
        self._offset, self._kept = 0, b""

    def cut(self, byte_offset: int, data: bytes) -> list[Line]:
        """Return the lines that end in this piece; what was kept ends too if the piece does not follow on."""
        lines = self.flush() if byte_offset != self._offset + len(self._kept) else []
        if not self._kept:
            self._offset = byte_offset
        parts = (self._kept + data).split(b"\n")
        for part in parts[:-1]:
            lines += self._line(part, len(part) + 1)
        self._kept = parts[-1]
        while len(self._kept) > LONGEST_LINE:
            end = _between_characters(self._kept, LONGEST_LINE)
            part, self._kept = self._kept[:end], self._kept[end:]
            lines += self._line(part, len(part))
        return lines

    @property
    def unfinished(self) -> int | None:
        """Where the line begins that has no end yet; None: there is none."""
        return self._offset if self._kept else None

    def flush(self) -> list[Line]:
        """Return the line that has no end, if there is one."""
        kept, self._kept = self._kept, b""
        return self._line(kept, len(kept)) if kept else []

    def _line(self, part: bytes, size: int) -> list[Line]:
        line = Line(self._offset, part.removesuffix(b"\r").decode("utf-8", "replace"))
        self._offset += size
        return [line]


def is_inside_character(data: bytes) -> bool:
    """Return whether *data* begins behind the first byte of a character."""
    return bool(data) and data[0] & 0xC0 == 0x80


def _between_characters(data: bytes, place: int) -> int:
    """Return *place*, or where the character begins inside which it is."""
    near = range(place, place - LONGEST_CHARACTER, -1)
    # What is no text may be cut anywhere.
    return next((one for one in near if not is_inside_character(data[one : one + 1])), place)
