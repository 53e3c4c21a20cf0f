"""Values that look random and are the same at every replay of a run."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from uuid import UUID


def first_seed(run_id: int, enqueued_at: datetime) -> str:
    """Return what the random values of a run grow from; another database has another one for the same id."""
    return f"{run_id}/{enqueued_at.timestamp():.6f}"


def next_seed(seed: str) -> str:
    """Return what the random values of a run that was continued as new grow from."""
    return blake2b(f"{seed}/continued".encode(), digest_size=16).hexdigest()


def drawn_uuid(seed: str, branch: str, draw: int) -> UUID:
    """Return the *draw*-th value of a branch as a UUID."""
    return UUID(bytes=_bytes(seed, branch, draw), version=4)


def drawn_float(seed: str, branch: str, draw: int) -> float:
    """Return the *draw*-th value of a branch as a number from 0 to below 1."""
    return (int.from_bytes(_bytes(seed, branch, draw)[:8], "big") >> 11) / (1 << 53)


def _bytes(seed: str, branch: str, draw: int) -> bytes:
    return blake2b(f"{seed}/{branch}/{draw}".encode(), digest_size=16).digest()
