"""A fixed piece of work for the processor: how fast the machine is at this moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

ROUNDS = 400_000


def yardstick() -> float:
    """Return how many milliseconds the fixed loop took; more means that something else used the machine."""
    began = time.perf_counter()
    value = 1
    for step in range(ROUNDS):
        value = (value * 1_103_515_245 + step) & 0xFFFF_FFFF
    return (time.perf_counter() - began) * 1000


def calmness(ticks: Sequence[float]) -> str:
    """Say in a sentence how evenly the machine ran while these were measured."""
    if not ticks:
        return "The machine's pace was not recorded."
    least, middle, most = min(ticks), median(ticks), max(ticks)
    return (
        f"The fixed loop took {middle:.0f} ms in the median, {least:.0f} to {most:.0f} ms: "
        f"the machine was up to {most / least:.1f} times slower at one time than at another."
    )
