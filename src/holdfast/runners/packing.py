"""Gzip from outside, unpacked within a bound."""

from __future__ import annotations

import asyncio
import zlib

from holdfast.errors import InputInvalid, PayloadTooLarge

_GZIP = 16 + zlib.MAX_WBITS
# Below this, a thread costs more than the work.
WORTH_A_THREAD = 32 * 1024


async def unpacked(data: bytes, most: int) -> bytes:
    """Return what *data* unpacks to; raises `PayloadTooLarge` past *most* bytes, `InputInvalid` for junk."""
    if len(data) < WORTH_A_THREAD:
        return _unpacked(data, most)
    return await asyncio.to_thread(_unpacked, data, most)


def _unpacked(data: bytes, most: int) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        # One byte more than allowed tells a bomb from a body that just fits; nothing beyond is unpacked.
        content = unpacking.decompress(data, most + 1)
    except zlib.error as error:
        msg = f"the body is no gzip, though it says so: {error}"
        raise InputInvalid(msg) from error
    if len(content) > most:
        raise PayloadTooLarge("the unpacked body", size=len(content), limit=most)
    if not unpacking.eof or unpacking.unused_data:
        msg = "the body is not one whole gzip member: pack it in one piece"
        raise InputInvalid(msg)
    return content
