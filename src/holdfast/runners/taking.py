"""Tells what runners hold no more, though they have reported no end."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.runtime.events import Events
from holdfast.store.workers import Rescued


def tell_taken(events: Events, taken: Sequence[Rescued]) -> None:
    """Tell what was taken from runners, if anything was."""
    if taken:
        events.emit("assignments.taken", count=len(taken), fates={one.job_id: one.fate for one in taken})
