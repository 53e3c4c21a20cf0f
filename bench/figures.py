"""Medians, spread, percentiles and ratios: all that is ever said about numbers here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median


@dataclass(frozen=True, slots=True)
class Summary:
    """What several rounds of one cell came to."""

    median: float
    least: float
    most: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance from the least to the most, as a share of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def summary(values: Sequence[float]) -> Summary:
    """Sum up the rounds of a cell; raises ValueError where there are none."""
    if not values:
        msg = "a summary needs at least one value"
        raise ValueError(msg)
    return Summary(median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least *share* of all values do not exceed (nearest rank)."""
    if not values or not 0 < share <= 1:
        msg = f"the {share:g} quantile of {len(values)} values is not defined"
        raise ValueError(msg)
    return sorted(values)[ceil(share * len(values)) - 1]


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Summary | None:
    """Sum up the ratios of two cells, round by round, so that what slowed a whole round down cancels out.

    None where they have no round in common.
    """
    shared = [number for number in sorted(above) if below.get(number)]
    return summary([above[number] / below[number] for number in shared]) if shared else None


def overlap(intervals: Sequence[tuple[int, int]]) -> int:
    """Return how many of the intervals lie over each other at most; meeting ends do not count."""
    edges = sorted([(end, -1) for _, end in intervals] + [(begin, 1) for begin, _ in intervals])
    most = depth = 0
    for _, step in edges:
        depth += step
        most = max(most, depth)
    return most
