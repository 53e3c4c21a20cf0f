"""Statements about runs as a whole: suspend, continue as new, pause, resume, fork."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.audit import Mandate
from holdfast.model.outcome import Suspend
from holdfast.model.step import StepNote
from holdfast.store.attempts import Fence
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Statement, column, first_value, is_any, numbers
from holdfast.store.steps import seconds_until

_SQL = blocks("runs")


@dataclass(frozen=True, slots=True)
class Suspended:
    """An attempt whose run falls asleep; *seconds* and *kind* are for whoever counts."""

    fence: Fence
    decision: Suspend
    seconds: float = 0.0
    kind: str = ""


def suspend_runs(suspended: Sequence[Suspended]) -> Statement[list[int]]:
    """End attempts whose runs wait; answers the runs whose lease still held."""
    parameters = (
        numbers([one.fence.job_id for one in suspended]),
        numbers([one.fence.attempt for one in suspended]),
        [_wait(one.decision) for one in suspended],
    )
    return Statement("suspend_runs", _SQL["suspend_runs"], parameters, column)


def _wait(decision: Suspend) -> str:
    wait = {
        "signals": decision.signals,
        "families": decision.families,
        "wake_in": seconds_until(decision.due),
        "paused": decision.paused,
        "stopping": decision.stopping,
        "reason": decision.reason,
        "notes": [_note(note) for note in decision.notes],
    }
    return msgspec.json.encode(wait).decode()


def _note(note: StepNote) -> dict[str, Any]:
    # The result goes as a string: as part of a jsonb object its text would not stay as it is.
    return {
        "branch": note.branch,
        "place": note.place,
        "name": note.name,
        "kind": note.kind,
        "state": note.state,
        "wake_in": seconds_until(note.due),
        "result": note.result,
    }


def continue_run(fence: Fence, args: str, seed: str) -> Statement[bool]:
    """Begin a held run anew with other arguments; False: the lease was lost."""
    parameters = (fence.job_id, fence.attempt, args, msgspec.json.encode(seed).decode())
    return Statement("continue_run", _SQL["continue_run"], parameters, is_any)


def pause_runs(run_ids: Sequence[int], mandate: Mandate) -> Statement[list[int]]:
    """Pause runs and their children that follow them; answers those that were met."""
    return Statement("pause_runs", _SQL["pause_runs"], _parameters(run_ids, mandate), column)


def resume_runs(run_ids: Sequence[int], mandate: Mandate) -> Statement[list[int]]:
    """Let paused runs go on, and their children that follow them; answers those that were met."""
    return Statement("resume_runs", _SQL["resume_runs"], _parameters(run_ids, mandate), column)


def _parameters(run_ids: Sequence[int], mandate: Mandate) -> tuple[list[int], str, str | None]:
    return (list(run_ids), mandate.actor, mandate.reason)


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The finished step behind which a fork begins; the last one of that name where *place* is None."""

    branch: str
    step: str
    place: int | None


def fork_run(run_id: int, seed: str, point: ForkPoint, mandate: Mandate) -> Statement[int | None]:
    """Enqueue a run that remembers what another one had recorded; answers its id, None: no such step."""
    parameters = (run_id, seed, point.branch, point.step, point.place, mandate.actor, mandate.reason)
    return Statement("fork_run", _SQL["fork_run"], parameters, first_value)
