"""Statements about bundles: many first attempts of one worker that stand in one row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import msgspec

from holdfast.store.attempts import Ended
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, numbers

_SQL = blocks("bundles")

# How many bundles are taken apart at once, so that a rescue comes in batches.
AT_ONCE = 4
# Where an attempt stands: in which bundle, how many jobs that had, and which of them this is, from 0.
Tie = tuple[int, int, int]


def complete_bundled(ended: Sequence[tuple[Tie, Ended]]) -> Statement[list[int]]:
    """End attempts that are completed and stand in bundles; answers the jobs that it has ended."""
    starts = dict[int, int]()
    seconds = list[float | None]()
    results = dict[int, str]()
    for (bundle, size, nth), one in ended:
        start = starts.get(bundle)
        if start is None:
            start = starts[bundle] = len(seconds)
            seconds += [None] * size
        seconds[start + nth] = one.seconds
        result = one.decision.result  # type: ignore[union-attr]  # completed, as was said
        if result is not None:
            results[start + nth] = result
    bits = "".join(["0" if one is None else "1" for one in seconds])
    begins = [*starts.values()]
    masks = [bits[begin:end] for begin, end in pairwise([*begins, None])]
    parameters = (
        numbers([*starts]),
        masks,
        numbers(begins),
        numbers(seconds),
        [results.get(place) for place in range(len(seconds))] if results else [],
    )
    return Statement("complete_bundled", _SQL["complete_bundled"], parameters, _ended)


def _ended(rows: Sequence[Row]) -> list[int]:
    ended: list[int] = msgspec.json.decode(rows[0][0])
    return ended


def untie_jobs(job_ids: Collection[int]) -> Statement[list[int]]:
    """Take jobs out of whatever bundles they are in; answers those that were in one."""
    return Statement("untie_jobs", _SQL["untie_jobs"], (numbers([*job_ids]),), column)


def untie_known(bundles: Collection[int], job_ids: Collection[int]) -> Statement[list[int]]:
    """Take jobs out of these bundles; answers those that were there still."""
    parameters = (numbers([*bundles]), numbers([*job_ids]))
    return Statement("untie_known", _SQL["untie_known"], parameters, column)


def untie_unknown(worker_id: int, known: Collection[int]) -> Statement[list[int]]:
    """Take jobs out of a worker's bundles, all but those that it knows of."""
    return Statement("untie_unknown", _SQL["untie_unknown"], (worker_id, numbers([*known])), column)


def untie_orphans(term: int, limit: int = AT_ONCE, *, also_left: bool = True) -> Statement[list[int]]:
    """Take all jobs out of up to *limit* bundles whose workers are lost or, with *also_left*, have left."""
    return Statement("untie_orphans", _SQL["untie_orphans"], (term, limit, also_left), column)
