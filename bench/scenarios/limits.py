"""E: limits are exact, and cost little beside the same number of jobs running without a limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from bench.catalogue import HOLDFAST, Contestant
from bench.cell import Case, Cell, Figures, Scale
from bench.cluster import Cluster
from bench.drain import Drained, drain, enqueue
from bench.exactly_once import NotExactlyOnce
from bench.figures import overlap
from bench.peers.load import Load
from bench.program import perform

LIMIT, KEYS, IN_A_ROW, WIDE = 10, 1000, 10, 100
# How many jobs of a millisecond there are, in drains of other cells, where so many run at once: enough for
# five seconds, so that it does not count how a worker starts.
LENGTHS = {LIMIT: 0.4, WIDE: 2.0}
QUEUE_FRESH, KEYS_FRESH = f"{LIMIT} slots, no limit", f"{WIDE} slots, no limit"


class LimitExceeded(NotExactlyOnce):
    """More ran at once than was allowed."""


def cells() -> list[Cell]:
    """Return a limited queue and limited keys, each beside its unlimited like."""
    return [
        _cell(QUEUE_FRESH, slots=LIMIT),
        _cell(f"a queue limited to {LIMIT}", slots=WIDE, limit=LIMIT, fresh=QUEUE_FRESH),
        _cell(KEYS_FRESH, slots=WIDE),
        _cell(f"{KEYS:,} keys limited to 1 each", slots=WIDE, keys=KEYS, fresh=KEYS_FRESH),
        _cell(
            f"{KEYS:,} keys limited to 1 each, {IN_A_ROW} jobs of a key in a row",
            slots=WIDE,
            keys=KEYS,
            in_a_row=IN_A_ROW,
            fresh=KEYS_FRESH,
        ),
    ]


def _cell(
    name: str, *, slots: int, limit: int = 0, keys: int = 0, in_a_row: int = 1, fresh: str | None = None
) -> Cell:
    case = Case(scenario="E", name=name, fresh=fresh)
    load = Load(kind="ms", slots=slots, limit=limit, keys=keys, in_a_row=in_a_row, latency=True)
    return Cell(
        scenario="E", name=name, measure=partial(measure, case=case, load=load), contestants=(HOLDFAST,)
    )


async def measure(peer: Contestant, scale: Scale, *, case: Case, load: Load) -> Figures:
    """Drain jobs of a millisecond each under the load's limit; raises `LimitExceeded`."""
    asked = replace(load, jobs=int(scale.jobs * LENGTHS[load.limit or load.slots]))
    with Cluster() as cluster:
        await perform(peer, cluster.dsn, "setup", asked)
        await enqueue(cluster, peer, asked)
        drained = await drain(cluster, peer, asked)
    check_limit(drained, asked)
    return {case: drained.rate}


def check_limit(drained: Drained, load: Load) -> None:
    """Hold the recorded intervals against the limit; raises `LimitExceeded`, `NotExactlyOnce`."""
    # A job whose end was not noted would lie over no other.
    if (noted := sum(1 for _ in intervals(drained))) != load.jobs:
        msg = f"the ends of {noted} jobs were noted, and there were {load.jobs}"
        raise NotExactlyOnce(msg)
    if load.limit and (most := overlap([run for _, run in intervals(drained)])) > load.limit:
        msg = f"{most} jobs of a queue ran at once, {load.limit} are allowed"
        raise LimitExceeded(msg)
    if load.keys:
        for key, runs in by_key(intervals(drained), load).items():
            if (most := overlap(runs)) > 1:
                msg = f"{most} jobs of key {key} ran at once, 1 is allowed"
                raise LimitExceeded(msg)


def intervals(drained: Drained) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield every job's number with the begin and end of its handler."""
    for report in drained.reports:
        began = dict(zip(report["numbers"], report["began"], strict=True))
        for number, ended in report["ended"]:
            yield number, (began[number], ended)


def by_key(found: Iterable[tuple[int, tuple[int, int]]], load: Load) -> dict[int, list[tuple[int, int]]]:
    """Gather intervals by concurrency key."""
    gathered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, run in found:
        gathered[load.key(number)].append(run)
    return gathered
