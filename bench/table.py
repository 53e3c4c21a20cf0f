"""The figures as tables for a terminal: every case, every contestant, medians with their spread."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from bench.catalogue import HOLDFAST, PEERS, contestant
from bench.cell import Case
from bench.figures import Summary, paired_ratio, summary
from bench.results import Results

SCENARIOS = {
    "A": "getting jobs in",
    "B": "getting jobs done",
    "C": "from commit to handler",
    "D": "the worst days, against a fresh database",
    "E": "under limits",
    "F": "what a job costs",
    "G": "more slots, more processes",
    "W": "durable runs",
}


def print_tables(results: Results, console: Console) -> None:
    """Print all figures, what failed and who was left out."""
    for case in results.cases():
        console.print(table(results, case))
    measured = {one.contestant for one in results.measurements}
    for peer in PEERS:
        if peer.note and peer.name in measured:
            console.print(f"* {peer.label}: {peer.note}", markup=False)
    for label, reason in results.left_out.items():
        console.print(f"left out: {label}: {reason}", markup=False)
    for failure in results.failures:
        last = (failure.reason.strip() or "no reason was given").splitlines()[-1]
        console.print(f"failed: {failure.cell}: {failure.contestant}: {last}", markup=False)


def table(results: Results, case: Case) -> Table:
    """Return the table of one case, best first."""
    title = f"{case.scenario} ({SCENARIOS[case.scenario]}): {case.name}, {case.unit}"
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("", "median", "least", "most", "rounds", "Holdfast ÷ it"):
        made.add_column(name, justify="left" if not name else "right")
    for name, figures, ratio in rows(results, case):
        label = contestant(name).label + ("*" if contestant(name).note else "")
        cells = (shown(figures.median), shown(figures.least), shown(figures.most), str(figures.rounds))
        made.add_row(label, *cells, f"{ratio.median:.2f} ×" if ratio and name != HOLDFAST.name else "")
    return made


def rows(results: Results, case: Case) -> Iterator[tuple[str, Summary, Summary | None]]:
    """Yield contestants, best first, with their figures and Holdfast's ratio to them, round by round."""
    rounds = results.rounds_of(case)
    ours = rounds.get(HOLDFAST.name, {})
    found = [(name, summary(list(of.values())), paired_ratio(ours, of)) for name, of in rounds.items()]
    yield from sorted(found, key=lambda row: row[1].median, reverse=not case.less_is_better)


def shown(value: float) -> str:
    """Return a figure with three digits that mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
