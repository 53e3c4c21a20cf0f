"""The binary format of COPY, as PostgreSQL's documentation of COPY has it under "Binary Format".

A row is the number of its values, as a smallint, and then each value behind its length in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from struct import Struct

from holdfast.errors import InputInvalid

SMALLEST_MESSAGE, LARGEST_MESSAGE = 64 * 1024, 16 * 1024 * 1024

_BEGIN = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = b"\xff\xff"

# Where there is no value, its length is -1.
NOTHING = b"\xff\xff\xff\xff"
# The version of the format of a jsonb, which comes before its text.
JSONB = 1

# Each with the length before it.
smallint = partial(Struct(">ih").pack, 2)
integer = partial(Struct(">ii").pack, 4)
bigint = partial(Struct(">iq").pack, 8)
double = partial(Struct(">id").pack, 8)

_length = Struct(">i").pack
# Arrays of text: dimensions, whether nulls are in them, and the type's number; then count and first index.
_array = Struct(">iii").pack
_dimension = Struct(">ii").pack
_TEXT = 25
# Times count in microseconds from here.
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def text(value: str | None) -> bytes:
    """Pack a text, or none."""
    if value is None:
        return NOTHING
    data = value.encode()
    return _length(len(data)) + data


def jsonb(value: str | None) -> bytes:
    """Pack JSON text, or none."""
    if value is None:
        return NOTHING
    data = value.encode()
    return _length(1 + len(data)) + bytes((JSONB,)) + data


def texts(values: Sequence[str]) -> bytes:
    """Pack an array of texts."""
    if not values:
        data = _array(0, 0, _TEXT)
    else:
        data = _array(1, 0, _TEXT) + _dimension(len(values), 1) + b"".join(map(text, values))
    return _length(len(data)) + data


def moment(at: datetime) -> bytes:
    """Pack a timestamptz."""
    return bigint((at - _EPOCH) // _MICROSECOND)


def messages(rows: Iterator[bytes]) -> Iterator[bytes]:
    """Make a whole COPY of packed rows, in messages of a good size; raises `InputInvalid`."""
    # Each message is a call of the system, and jobs that are all different come one by one.
    waiting, size = [_BEGIN], 0
    for part in _sendable(rows):
        waiting.append(part)
        size += len(part)
        if size >= SMALLEST_MESSAGE:
            yield from _cut(b"".join(waiting))
            waiting, size = [], 0
    yield from _cut(b"".join((*waiting, _END)))


def _sendable(rows: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from rows
    except UnicodeEncodeError as error:
        msg = f"a value cannot be sent to PostgreSQL: {error.reason}"
        raise InputInvalid(msg) from None


def _cut(data: bytes) -> Iterator[bytes]:
    # The server takes no message of a gigabyte, and a thousand jobs may be one; rows may be cut anywhere.
    return (data[begin : begin + LARGEST_MESSAGE] for begin in range(0, len(data), LARGEST_MESSAGE))
