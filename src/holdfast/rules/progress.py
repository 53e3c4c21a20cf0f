"""What a handler says of how far it is, made fit to be kept."""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import OptionInvalid
from holdfast.rules.outcome import storable


def told_progress(fraction: Any, note: str | None) -> tuple[float, str | None]:
    """Return a fraction within 0 and 1 and a note that can be stored; raises `OptionInvalid`."""
    if isinstance(fraction, (str, bytes)) or not hasattr(fraction, "__float__"):
        raise OptionInvalid("fraction", fraction, "give a number from 0 to 1")
    if note is not None and not isinstance(note, str):
        raise OptionInvalid("note", note, "give a string")
    try:
        share = float(fraction)
    except OverflowError:
        share = math.inf if fraction > 0 else -math.inf
    return min(1.0, max(0.0, share)), None if note is None else storable(note)
