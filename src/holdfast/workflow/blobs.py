"""Data of a run that are too large for what it remembers."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app.signature import json_text
from holdfast.errors import BlobNotFound, InputInvalid, PayloadTooLarge
from holdfast.model.blob import Blob
from holdfast.store import blobs
from holdfast.workflow.replay import Replay

MAX_BLOB_BYTES = 64 * 1024 * 1024


async def keep(replay: Replay, value: Any) -> Blob:
    """Keep bytes or a JSON value apart; raises `InputInvalid`, `PayloadTooLarge`."""
    plain = isinstance(value, bytes | bytearray | memoryview)
    data = bytes(value) if plain else json_text(value, _refusal).encode()
    if len(data) > MAX_BLOB_BYTES:
        raise PayloadTooLarge("the blob", size=len(data), limit=MAX_BLOB_BYTES)
    return Blob(await replay.ask(blobs.save_blob(replay.ledger.fence, data)), len(data), plain)


async def fetch(replay: Replay, blob: Blob) -> Any:
    """Return what was kept; raises `BlobNotFound`."""
    data = await replay.ledger.ask(blobs.load_blob(blob.id))
    if data is None:
        raise BlobNotFound(blob.id)
    return data if blob.plain else msgspec.json.decode(data)


def _refusal(problem: str) -> InputInvalid:
    return InputInvalid(f"the blob cannot be kept: {problem}")
