"""Streams that are full, closed or not for Unicode: no traceback, and no answer is lost in silence."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

ESCAPES = "holdfast-escapes"


class OutputFailed(OSError):
    """What a command prints cannot be written."""


class _Descriptor(io.FileIO):
    """The descriptor of standard output; once *is_over* is true, what could not be written is dropped."""

    is_over = False

    def write(self, data: Buffer, /) -> int:
        if self.is_over:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from error


def replace_closed() -> None:
    """Put an empty stream where stdin was closed, and one that keeps nothing where stderr was.

    Nobody has to look whether they are there then, and no connection takes their place.
    """
    if cast("io.TextIOBase | None", sys.stdin) is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - for as long as the process lives
    if cast("io.TextIOBase | None", sys.stderr) is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives


@contextmanager
def standard_output() -> Iterator[None]:
    """Write what is printed in the block to standard output; raises `OutputFailed`.

    Letters that its encoding does not have are written as escapes, as JSON knows them.
    """
    codecs.register_error(ESCAPES, _escaped)
    before = cast("io.TextIOWrapper | None", sys.stdout)
    if before is None:
        # It was closed.  A descriptor that can only be read refuses what is written to it in the same words.
        raw = _Descriptor(os.open(os.devnull, os.O_RDONLY), "w")
        now = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    else:
        raw = _Descriptor(before.fileno(), "w", closefd=False)
        now = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=before.encoding,
            errors=ESCAPES,
            line_buffering=before.line_buffering or before.write_through,
        )
    sys.stdout = now
    try:
        try:
            yield
        finally:
            now.flush()
    finally:
        raw.is_over, sys.stdout = True, before


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end
