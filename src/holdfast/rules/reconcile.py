"""What follows when a runner has said what it holds: the two lists, side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.model.runner import Held

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """*missing* is taken from the runner, *unseen* is offered to it again."""

    missing: tuple[Held, ...]
    unseen: tuple[Held, ...]


def reconcile(held: Sequence[Held], listed: Collection[Pair], number: int | None) -> Reconciled:
    """Compare what the server has with what the runner *listed* in its request *number*.

    An assignment that a later request accepted is not missing: the list is older than the acceptance.
    Without a *number* a runner sends one request after the other, and its list is always the newest word.
    """
    missing: list[Held] = []
    unseen: list[Held] = []
    for one in held:
        if (one.job_id, one.attempt) in listed:
            continue
        if not one.accepted:
            unseen.append(one)
        elif number is None or one.accepted_by < number:
            missing.append(one)
    return Reconciled(tuple(missing), tuple(unseen))
