"""A result that is kept apart because of its size."""

from __future__ import annotations

import msgspec


class Blob(msgspec.Struct, frozen=True):
    """Stands for data of a run that is kept apart; give it to other steps and children instead of the data.

    *size* is in bytes; *plain* says that the data are bytes, not a JSON value.
    """

    id: int
    size: int
    plain: bool
