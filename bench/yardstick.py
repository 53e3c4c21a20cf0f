"""A fixed piece of work for the processor: how fast the machine is at this moment."""

from __future__ import annotations

import time

ROUNDS = 400_000


def yardstick() -> float:
    """Return how many milliseconds the fixed loop took; more means that something else used the machine."""
    began = time.perf_counter()
    value = 1
    for step in range(ROUNDS):
        value = (value * 1_103_515_245 + step) & 0xFFFF_FFFF
    return (time.perf_counter() - began) * 1000
