"""Statements about the children of runs: start them, take their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.job import NewJob
from holdfast.store.attempts import Fence
from holdfast.store.jobs import array_literal, terms
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, first_value, sparse

_SQL = blocks("children")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a run a family of children belongs; *detail* is JSON text."""

    branch: str
    place: int
    name: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ends:
    """How children ended, as JSON text; None while one lives, or where *excess* bytes are too many.

    *missing* ends are kept no longer, so the rest of them is none either.
    """

    text: str | None
    excess: int | None
    missing: int | None


def start_children(fence: Fence, place: Place, jobs: Sequence[NewJob]) -> Statement[int | None]:
    """Enqueue the children of a place, with its row; answers their family.

    0: the parent is paused or its cancel was requested, and nothing was enqueued.  None: the lease was lost.
    """
    parameters = (
        *(fence.job_id, fence.attempt, place.branch, place.place, place.name, place.kind, place.detail),
        *terms(jobs),
        sparse([job.concurrency_key for job in jobs]),
        [array_literal(job.tags) for job in jobs],
        [job.meta for job in jobs],
        sparse([job.trace for job in jobs]),
        [job.placement for job in jobs],
    )
    return Statement("start_children", _SQL["start_children"], parameters, first_value)


def take_children(
    fence: Fence, branch: str, place: int, *, family: int, count: int, most: int
) -> Statement[Ends | None]:
    """Record in *most* bytes how the children of a family ended, once all have; None: the lease was lost."""
    parameters = (fence.job_id, fence.attempt, branch, place, family, count, most)
    return Statement("take_children", _SQL["take_children"], parameters, _taken)


def _taken(rows: Sequence[Row]) -> Ends | None:
    return Ends(*rows[0]) if rows else None
