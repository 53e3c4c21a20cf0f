"""What follows from the server's list for a runner that holds another one: a pure decision."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.runners.agent.messages import Assignment, CancelOrder, Fence, Hold


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do: assignments to *begin*, cancels to obey, and what to *stop* and forget."""

    begin: tuple[Assignment, ...]
    cancel: tuple[tuple[Fence, CancelOrder], ...]
    stop: tuple[Fence, ...]


def reconcile(
    hold: Collection[Hold],
    *,
    told: Collection[Fence],
    held: Collection[Fence],
    done: Collection[Fence],
    free: int,
) -> Orders:
    """Compare what the runner should hold with what it holds.

    *told* is what the answered request listed: only of that the answer can say that it is not wanted.
    *done* are assignments that ended and were forgotten; an answer under way may still list them.
    *free* bounds what is begun; an offer that is not taken up goes back by itself.  One that is cancelled
    already is begun all the same: its end has to be told.
    """
    wanted = {one.fence for one in hold}
    offers = [
        one.assignment
        for one in hold
        if one.assignment is not None and one.fence not in held and one.fence not in done
    ]
    begin = tuple(offers[: max(0, free)])
    ours = {*held, *(one.fence for one in begin)}
    return Orders(
        begin=begin,
        cancel=tuple((one.fence, one.cancel) for one in hold if one.cancel is not None and one.fence in ours),
        stop=tuple(fence for fence in held if fence in told and fence not in wanted),
    )
