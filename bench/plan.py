"""All cells of the benchmark, scenario by scenario."""

from __future__ import annotations

from bench.cell import Cell
from bench.scenarios import costs, decay, drains, inserts, latency, limits, runs, scaling


def all_cells() -> list[Cell]:
    """Return every cell; drains come first, for they say most."""
    parts = (drains, latency, inserts, decay, limits, costs, scaling, runs)
    return [cell for part in parts for cell in part.cells()]
