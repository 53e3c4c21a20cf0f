"""Statements about signals: send, take, list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.run import UnreadSignal
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, first_value

_SQL = blocks("signals")


def send_signal(run_id: int, name: str, payload: str | None, key: str | None) -> Statement[int]:
    """Send a signal with a *payload* of JSON text; answers its id."""
    return Statement("send_signal", _SQL["send_signal"], (run_id, name, payload, key), first_value)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a place found: *text* is a JSON list of the payload alone, None where nothing has come."""

    text: str | None


def take_signal(fence: Fence, branch: str, place: int, name: str) -> Statement[Taken | None]:
    """Give the oldest unread signal to a place and record it there; None: the lease was lost."""
    parameters = (fence.job_id, fence.attempt, branch, place, name)
    return Statement("take_signal", _SQL["take_signal"], parameters, _taken)


def _taken(rows: Sequence[Row]) -> Taken | None:
    return Taken(rows[0][0]) if rows else None


def list_signals(run_id: int) -> Statement[list[UnreadSignal]]:
    """Show the signals that a run has not read yet, oldest first."""
    return Statement("list_signals", _SQL["list_signals"], (run_id,), _unread)


def _unread(rows: Sequence[Row]) -> list[UnreadSignal]:
    return [UnreadSignal(*row) for row in rows]
