"""How far the logs of a job were read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from holdfast.errors import OptionInvalid

_TEXT = re.compile(
    r"(?a:(\d{1,10})\.(\d{1,18})\.(\d{1,18})((?:,\d{1,10}\.(?:stdout|stderr|system)\.\d{1,18})*))"
)


@dataclass(frozen=True, slots=True)
class LogMark:
    """Behind what was read: of handlers by *attempt* and *byte_offset*, of runners by *piece*.

    *told* has streams, as attempt, name and offset, of which more was read than up to that piece.
    """

    attempt: int = 0
    byte_offset: int = -1
    piece: int = 0
    told: tuple[tuple[int, str, int], ...] = ()

    @property
    def text(self) -> str:
        """The mark as it travels: `parse` reads it."""
        told = "".join(f",{attempt}.{stream}.{offset}" for attempt, stream, offset in self.told)
        return f"{self.attempt}.{self.byte_offset + 1}.{self.piece}{told}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a mark; raises `OptionInvalid`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise OptionInvalid("after", text, "give the mark of a former page as it is")
        told = (one.split(".") for one in match[4].split(",")[1:])
        return cls(
            int(match[1]),
            int(match[2]) - 1,
            int(match[3]),
            tuple((int(attempt), stream, int(offset)) for attempt, stream, offset in told),
        )


BEGINNING = LogMark()
