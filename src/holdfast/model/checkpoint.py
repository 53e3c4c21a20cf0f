"""A checkpoint: the saved state from which an attempt goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state (*data* is JSON text), the version of its shape and the attempt that saved it."""

    version: int
    data: str
    attempt: int
    saved_at: datetime
