"""What is published of a run: the figures in bench/README.md and as JSON, the pictures in the docs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.catalogue import HOLDFAST, contestant
from bench.cell import Case
from bench.plots import drawings, file_name
from bench.results import Results
from bench.table import SCENARIOS, rows, shown
from bench.verdicts import verdicts
from bench.yardstick import calmness

PLACE = re.compile(r"(<!-- results: .*? -->\n).*?(<!-- end of results -->)", re.DOTALL)

# The cases that docs/benchmark.md shows.
SHOWN = (
    Case(scenario="B", name="drain, 1 process, 50 B"),
    Case(scenario="B", name="drain, handlers that take 1 ms"),
    Case(scenario="A", name="bulk enqueue, 50 B"),
    Case(scenario="A", name="single enqueues, 8 clients, workers listen"),
    Case(scenario="C", name="idle, p50", unit="ms", less_is_better=True),
    Case(scenario="C", name="idle, p99", unit="ms", less_is_better=True),
)


def publish(results: Results, home: Path, docs: Path) -> None:
    """Put a run's figures into the page and beside it in *home*, and its pictures into *docs*."""
    fill(home / "README.md", results)
    results.write(home / "results.json")
    drawn = drawings(results)
    for name in map(file_name, SHOWN):
        if name in drawn:
            (docs / "benchmark").mkdir(exist_ok=True)
            (docs / "benchmark" / f"{name}.svg").write_text(drawn[name], "utf-8")


def fill(page: Path, results: Results) -> None:
    """Put the figures of a run into their place on a page."""
    text, places = PLACE.subn(lambda found: found[1] + markdown(results) + found[2], page.read_text("utf-8"))
    if not places:
        msg = f"{page} has no place for results"
        raise ValueError(msg)
    page.write_text(text, "utf-8")


def markdown(results: Results) -> str:
    """Return what a run found: the machine, the promises, every case."""
    return "\n".join([*_machine(results), *_promises(results), *_cases(results), ""])


def _machine(results: Results) -> Iterator[str]:
    about = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    ticks = [tick for one in results.measurements for tick in one.yardstick_ms]
    rounds = f"{results.rounds} round{'s' if results.rounds > 1 else ''}"
    yield f"\nMethod {results.method}, code of commit {results.code}."
    yield f"Up to {rounds}, {results.jobs:,} jobs to a drain; {about}. {calmness(ticks)}\n"


def _promises(results: Results) -> Iterator[str]:
    yield "| promise | median | least to most | bound | |\n|---|---:|---:|---:|---|"
    for one in verdicts(results):
        found = f"{one.found.median:.2f} {one.unit} | {one.found.least:.2f} to {one.found.most:.2f}"
        verdict = "" if one.bound is None else "kept" if one.is_kept else "**short**"
        yield f"| {one.what} | {found} | {one.asked} | {verdict} |"


def _cases(results: Results) -> Iterator[str]:
    letter = ""
    for case in results.cases():
        if case.scenario != letter:
            letter = case.scenario
            yield f"\n### {letter}: {SCENARIOS[letter]}"
        yield from _case(results, case)
    for label, reason in results.left_out.items():
        yield f"\nLeft out: {label}: {reason}."
    yield from _failures(results)


def _failures(results: Results) -> Iterator[str]:
    # The lines after the first are what an adapter printed.
    found = Counter((one.cell, one.contestant, one.reason.partition("\n")[0]) for one in results.failures)
    for (cell, name, reason), times in found.items():
        often = f" ({times} times)" if times > 1 else ""
        yield f"\nWithout a figure: {cell}: {contestant(name).label}{often}: {reason}."


def _case(results: Results, case: Case) -> Iterator[str]:
    yield f"\n**{case.name}**, {case.unit}\n"
    yield "| | median | least to most | rounds | Holdfast ÷ it |\n|---|---:|---:|---:|---:|"
    for name, figures, ratio in rows(results, case):
        spread = f"{shown(figures.least)} to {shown(figures.most)}"
        against = f"{ratio.median:.2f} ×" if ratio and name != HOLDFAST.name else ""
        measured = f"{shown(figures.median)} | {spread} | {figures.rounds}"
        yield f"| {contestant(name).label} | {measured} | {against} |"
