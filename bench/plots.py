"""Which pictures a run is drawn as: one for each case that has somebody to compare with."""

from __future__ import annotations

import re

from bench.catalogue import FLOORS, HOLDFAST, contestant
from bench.cell import Case
from bench.results import Results
from bench.svg import FLOOR_INK, OURS, THEIRS, Bar, bar_chart
from bench.table import SCENARIOS, rows, shown

COLOURS = {HOLDFAST.name: OURS} | {floor.name: FLOOR_INK for floor in FLOORS}


def drawings(results: Results) -> dict[str, str]:
    """Return SVG by file name, for every case with at least two contestants."""
    return {
        file_name(case): drawing(results, case)
        for case in results.cases()
        if len(results.rounds_of(case)) > 1
    }


def drawing(results: Results, case: Case) -> str:
    """Draw the medians of one case, best first."""
    found = list(rows(results, case))
    bars = [
        Bar(
            label=contestant(name).label,
            value=figures.median,
            least=figures.least,
            most=figures.most,
            shown=shown(figures.median),
            colour=COLOURS.get(name, THEIRS),
        )
        for name, figures, _ in found
    ]
    direction = "less is better" if case.less_is_better else "more is better"
    most = max(figures.rounds for _, figures, _ in found)
    rounds = f"median of up to {most} round{'s' if most > 1 else ''}"
    scenario = SCENARIOS[case.scenario].capitalize()
    return bar_chart(f"{scenario}: {case.name}", f"{case.unit}, {rounds}, {direction}", bars)


def file_name(case: Case) -> str:
    """Return the name of a case's picture, without its ending."""
    return f"{case.scenario.lower()}-{re.sub(r'[^a-z0-9]+', '-', case.name.lower()).strip('-')}"
