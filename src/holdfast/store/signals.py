"""Statements about signals: send, take, list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from holdfast.model.run import UnreadSignal
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, first_value, numbers

_SQL = blocks("signals")


def send_signal(run_id: int, name: str, payload: str | None, key: str | None) -> Statement[int]:
    """Send a signal with a *payload* of JSON text; answers its id."""
    return Statement("send_signal", _SQL["send_signal"], (run_id, name, payload, key), first_value)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a place found: *text* is a JSON list of the payload alone, None where nothing has come.

    *paused* says that somebody wants the run paused.
    """

    text: str | None
    paused: bool = False


class Waiter(NamedTuple):
    """A place of a held run that waits for a signal of that name."""

    fence: Fence
    branch: str
    place: int
    name: str


def take_signals(waiters: Sequence[Waiter]) -> Statement[list[Taken | None]]:
    """Give each place the oldest unread signal and record it there; None: the lease was lost."""
    parameters = (
        numbers([one.fence.job_id for one in waiters]),
        numbers([one.fence.attempt for one in waiters]),
        [one.branch for one in waiters],
        numbers([one.place for one in waiters]),
        [one.name for one in waiters],
    )
    return Statement("take_signals", _SQL["take_signals"], parameters, partial(_taken, len(waiters)))


def _taken(count: int, rows: Sequence[Row]) -> list[Taken | None]:
    taken: list[Taken | None] = [None] * count
    for nth, text, paused in rows:
        taken[nth - 1] = Taken(text, paused)
    return taken


def list_signals(run_id: int) -> Statement[list[UnreadSignal]]:
    """Show the signals that a run has not read yet, oldest first."""
    return Statement("list_signals", _SQL["list_signals"], (run_id,), _unread)


def _unread(rows: Sequence[Row]) -> list[UnreadSignal]:
    return [UnreadSignal(*row) for row in rows]
