"""Reads what a claim answers: a row for each job, or one for all jobs of a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count, repeat
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.store.statement import Row, read_numbers

_BEST_FIRST = attrgetter("priority", "place")
_FIELDS = ClaimedJob.__struct_fields__
# What few jobs have, as JSON in one column for all of it, and what it is for one that has nothing.
_EXTRA = ("retry", "meta", "tags", "trace")
_NO_EXTRA = (None, "{}", None, None)


def claimed(rows: Sequence[Row]) -> list[ClaimedJob]:
    """Read jobs, each a row of the columns of `ClaimedJob`, and bundles, which are rows without an id."""
    jobs = list[ClaimedJob]()
    for row in rows:
        if row[0] is None:
            jobs += _unbundled(row)
        else:
            jobs.append(ClaimedJob(*row[: len(_FIELDS)]))
    # Strict priority, then oldest first: RETURNING promises no order, but one row has it, or begins with who
    # is not ahead.
    if len(rows) > 1:
        jobs.sort(key=_BEST_FIRST)
    return jobs


def _unbundled(row: Row) -> list[ClaimedJob]:
    running, foremost, ids, args, enqueued, extra, keys = row[len(_FIELDS) :]
    ids, enqueued = read_numbers(ids), read_numbers(enqueued)
    # What all of them share is repeated.
    columns: dict[str, Iterable[Any]] = dict(zip(_FIELDS, map(repeat, row), strict=False))
    started = chain(repeat(True, running), repeat(False))
    ties = zip(columns["tie"], repeat(len(ids)), count())
    columns |= {
        "id": ids,
        "place": ids,
        "args": args,
        "enqueued": enqueued,
        "started": started,
        "tie": ties,
    }
    if keys is not None:
        begin = len(ids) if foremost is None else foremost
        columns |= {"key": keys, "ahead": chain(repeat(False, begin), repeat(True))}
    if extra is not None:
        columns |= zip(_EXTRA, zip(*map(_read_extra, extra), strict=True), strict=True)
    return list(map(ClaimedJob, *columns.values()))


def _read_extra(text: str | None) -> Sequence[Any]:
    return _NO_EXTRA if text is None else msgspec.json.decode(text)
