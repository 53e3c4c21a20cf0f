"""The log of step calls, as whoever writes it apart from the steps hands it in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityNote:
    """One line as it is to be written.

    *parameters*, *result* and *error* are JSON text; the call began *ago* seconds ago and took *seconds*.
    """

    step: str
    branch: str
    place: int
    tried: int
    parameters: str | None
    result: str | None
    error: str | None
    ago: float
    seconds: float
