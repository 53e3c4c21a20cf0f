"""The command line of the benchmark: ``python -m bench run | peers | report``."""

from __future__ import annotations

import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from bench import environments, identity, page, plan, plots, run, table, verdicts
from bench.catalogue import EVERYBODY, FLOORS, PEERS
from bench.cell import Cell, Scale
from bench.environments import HOME, EnvironmentMissing
from bench.lock import MachineTaken, alone
from bench.results import DifferentRuns, Results

OUT = HOME / "out"
# Few enough digits to type one again.
SEEDS = 1_000_000
SMALL = Scale(
    jobs=20_000, singles=1_000, probes=100, mass=20_000, pinned=5.0, idle=3.0, runs=2_000, timers=5_000
)

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
# Into a file, lines may be as long as tables are wide.
console = Console(width=None if sys.stdout.isatty() else 120)


@app.command("run")
def measure(
    scenario: Annotated[str, typer.Option(help="Letters of scenarios, such as ABC.")] = "ABCDEFGW",
    only: Annotated[str, typer.Option(help="Names of contestants, comma-separated; empty: all.")] = "",
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only cells with this in their names, such as 'idle'; may be given again."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each cell is measured.")] = 5,
    jobs: Annotated[int, typer.Option(min=0, help="Jobs of a drain; 0: 100,000, small 20,000.")] = 0,
    quick: Annotated[bool, typer.Option(help="A part of A, B, C and F, small, once: two minutes.")] = False,
    small: Annotated[
        bool, typer.Option(help="Everything that was asked for, small: for trying it out.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Repeat the order of contestants that this seed led to.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for results.json, tables and plots.")] = OUT,
) -> None:
    """Measure, then print tables and write JSON and plots."""
    signal.signal(signal.SIGTERM, _end)
    scale = SMALL if quick or small else Scale()
    scale = replace(scale, jobs=jobs) if jobs else scale
    results = Results.begin(
        jobs=scale.jobs,
        rounds=1 if quick else rounds,
        is_small=quick or small,
        code=identity.code_of(HOME.parent),
        # Whoever was measured first in every part would be first in all of them.
        seed=random.SystemRandom().randrange(SEEDS) if seed is None else seed,
    )
    cells = _chosen(scenario, cell or [""], only, quick=quick)
    try:
        with alone(f"figures in {out.resolve()}"):
            _measure(cells, scale, results, out, installs=not quick)
    except MachineTaken as error:
        raise typer.BadParameter(str(error)) from None


def _measure(cells: list[Cell], scale: Scale, results: Results, out: Path, *, installs: bool) -> None:
    missing = run.absent(cells, results, installs=installs, tell=_tell)
    cells = _without(cells, missing)
    takes_part = {one for cell in cells for one in cell.contestants}
    results.versions = identity.versions(peer for peer in PEERS if peer in takes_part)
    _tell(f"method {results.method}, code {results.code}, the order is of --seed {results.seeds[0]}")
    run.run(cells, scale, results, out / "results.json", _tell)
    _report(results, out)


@app.command()
def peers() -> None:
    """Make the environment of every peer."""
    for peer in PEERS:
        try:
            environments.prepare(peer)
            console.print(f"{peer.label}: ready")
        except EnvironmentMissing as error:
            console.print(f"{peer.label}: left out: {error}", markup=False)


@app.command()
def report(
    folders: Annotated[
        list[Path] | None, typer.Argument(help=f"The folder of a run, or of its parts; [default: {OUT}]")
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Put the figures into bench/, and pictures into docs/.")
    ] = False,
) -> None:
    """Print the tables of a run again, which may have been made in parts, and draw its plots anew."""
    folders = folders or [OUT]
    results = _joined(folders)
    if publish and results.is_small:
        raise typer.BadParameter(
            "the figures of a small run are there to try things out, not to be published"
        )
    # What is published lies among the sources: pictures of all cases have no place there.
    _report(results, next((folder for folder in folders if folder.resolve() != HOME.resolve()), OUT))
    if publish:
        page.publish(results, HOME, HOME.parent / "docs")


def _report(results: Results, out: Path) -> None:
    table.print_tables(results, console)
    console.print(verdicts.table(results))
    out.mkdir(parents=True, exist_ok=True)
    for name, drawing in plots.drawings(results).items():
        (out / f"{name}.svg").write_text(drawing, "utf-8")
    console.print(f"figures and plots are in {out}", markup=False)


def _joined(folders: list[Path]) -> Results:
    try:
        return Results.joined([Results.read(folder / "results.json") for folder in folders])
    except FileNotFoundError as error:
        msg = f"there is no {error.filename}: has a run been made there?"
        raise typer.BadParameter(msg) from None
    except DifferentRuns as error:
        raise typer.BadParameter(str(error)) from None


def _chosen(letters: str, parts: list[str], only: str, *, quick: bool) -> list[Cell]:
    named = {name.strip() for name in only.split(",") if name.strip()}
    known = {one.name for one in (*EVERYBODY, *FLOORS)}
    if named - known:
        msg = f"nobody is called {', '.join(sorted(named - known))}: there are {', '.join(sorted(known))}"
        raise typer.BadParameter(msg)
    cells = [
        cell
        for cell in plan.all_cells()
        if cell.scenario in letters
        and (cell.is_quick or not quick)
        and any(part in cell.name for part in parts)
    ]
    chosen = _without(cells, known - named if named else set())
    if not chosen:
        raise typer.BadParameter("no cell is left: look at --scenario, --cell and --only")
    return chosen


def _without(cells: list[Cell], names: set[str]) -> list[Cell]:
    left = [
        replace(cell, contestants=tuple(one for one in cell.contestants if one.name not in names))
        for cell in cells
    ]
    return [cell for cell in left if cell.contestants]


def _end(_number: int, _frame: FrameType | None) -> None:
    # As Ctrl-C does: servers and workers of the cell at hand are stopped on the way out.
    raise KeyboardInterrupt


def _tell(line: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, highlight=False)


if __name__ == "__main__":
    app()
