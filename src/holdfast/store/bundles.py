"""Statements about bundles: many first attempts of one worker that stand in one row."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from itertools import accumulate

import msgspec

from holdfast.model.job import Tie
from holdfast.store.attempts import LONGEST_AGO, Ended
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, numbers, sparse

_SQL = blocks("bundles")

# How many bundles are taken apart at once, so that a rescue comes in batches.
AT_ONCE = 4
_ENDS = ord("1")


def complete_bundled(ended: Sequence[tuple[Tie, Ended]]) -> Statement[list[int]]:
    """End attempts that are completed and stand in bundles; answers the jobs that it has ended."""
    parts = dict[int, tuple[bytearray, list[int], list[Ended]]]()
    for (bundle, size, nth), one in ended:
        part = parts.get(bundle)
        if part is None:
            part = parts[bundle] = bytearray(b"0" * size), [], []
        mask, places, ends = part
        # Whoever is told twice ends once.
        if mask[nth] != _ENDS:
            mask[nth] = _ENDS
            places.append(nth + 1)
            ends.append(one)
    in_order = [one for *_, ends in parts.values() for one in ends]
    clock, began, at = _told(in_order)
    parameters = (
        numbers([*parts]),
        [mask.decode() for mask, *_ in parts.values()],
        numbers([*accumulate((len(places) for _, places, _ in parts.values()), initial=0)][:-1]),
        numbers([place for _, places, _ in parts.values() for place in places]),
        numbers([one.seconds for one in in_order]),
        sparse([one.decision.result for one in in_order]),  # type: ignore[union-attr]  # completed, as was said
        numbers([ends[0].fence.job_id for *_, ends in parts.values()]),
        clock,
        began,
        at,
    )
    return Statement("complete_bundled", _SQL["complete_bundled"], parameters, _ended)


def _told(ended: Sequence[Ended]) -> tuple[float | None, str, str]:
    """Return what a worker's clock shows, and when each began and ended of those that are told by it."""
    if not any(one.turn for one in ended):
        return None, "{}", "{}"
    now = time.monotonic()
    # What is told to be later than it was is so for all, and in the same order.
    earliest = now - LONGEST_AGO
    began, at = list[float | None](), list[float | None]()
    for one in ended:
        turn = one.turn
        if turn is None:
            began.append(None)
            at.append(None)
        else:
            began.append(max(turn.began, earliest) if turn.is_behind else turn.began)
            at.append(max(one.at, earliest))
    return now, numbers(began), numbers(at)


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
