"""The run: every cell of every contestant once a round, interleaved, so that noise is shared."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import asyncpg
import psutil

from bench import environments
from bench.catalogue import PEERS, Contestant
from bench.cell import Cell, Failure, Figures, Measurement, Scale
from bench.environments import EnvironmentMissing
from bench.exactly_once import NotExactlyOnce
from bench.program import AdapterFailed
from bench.results import Results
from bench.scenarios.latency import PaceNotHeld
from bench.yardstick import yardstick

Tell = Callable[[str], None]
EXPECTED = (
    AdapterFailed,
    NotExactlyOnce,
    PaceNotHeld,
    EnvironmentMissing,
    RuntimeError,
    subprocess.SubprocessError,
    OSError,
    # What the server says when a peer has broken it, and what is said of a worker that is gone.
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    psutil.Error,
)


def present(peers: Iterable[Contestant], *, installs: bool, results: Results, tell: Tell) -> set[str]:
    """Return the names of the peers that can run here, and note why the others cannot."""
    found = set()
    for peer in peers:
        try:
            if not environments.is_ready(peer):
                if not installs:
                    raise EnvironmentMissing("its environment is not there: `make bench-peers` makes it")
                tell(f"installing {peer.label}")
                environments.prepare(peer)
            found.add(peer.name)
        except EnvironmentMissing as error:
            results.left_out[peer.label] = str(error)
            tell(f"without {peer.label}: {error}")
    return found


def absent(cells: Sequence[Cell], results: Results, installs: bool, tell: Tell) -> set[str]:
    """Return the names of the peers of *cells* that cannot run here; nobody else is installed."""
    asked = [peer for peer in PEERS if any(peer in cell.contestants for cell in cells)]
    return {peer.name for peer in asked} - present(asked, installs=installs, results=results, tell=tell)


def run(cells: Sequence[Cell], scale: Scale, results: Results, path: Path, tell: Tell) -> None:
    """Measure all cells, round after round; *path* holds what there is after each of them."""
    for number in range(results.rounds):
        for cell, contestant in order(cells, number, results.seeds[0]):
            tell(f"round {number + 1} of {results.rounds}: {cell.scenario} {cell.name}: {contestant.label}")
            _measure(cell, contestant, scale, results, number)
            results.write(path)


def order(cells: Sequence[Cell], number: int, seed: int) -> list[tuple[Cell, Contestant]]:
    """Return all pairs of a round: who is compared are neighbours, each round in another order.

    The same *seed* leads to the same orders, if the cells are the same.
    """
    chance = random.Random(f"{seed} {number}")  # noqa: S311 - so that an order can be repeated
    pairs = []
    for cell in cells:
        contestants = list(cell.contestants)
        chance.shuffle(contestants)
        pairs += [(cell, contestant) for contestant in contestants]
    return pairs


def _measure(cell: Cell, contestant: Contestant, scale: Scale, results: Results, number: int) -> None:
    before = yardstick()
    try:
        figures = asyncio.run(_figures(cell, contestant, scale))
    except EXPECTED as error:
        failure = Failure(
            cell=f"{cell.scenario} {cell.name}",
            contestant=contestant.name,
            round=number,
            # A timeout has no words of its own.
            reason=str(error)[-2000:] or type(error).__name__,
        )
        results.failures.append(failure)
        return
    ticks = (before, yardstick())
    results.measurements += [
        Measurement(case=case, contestant=contestant.name, round=number, value=value, yardstick_ms=ticks)
        for case, value in figures.items()
    ]


async def _figures(cell: Cell, contestant: Contestant, scale: Scale) -> Figures:
    return await cell.measure(contestant, scale)
