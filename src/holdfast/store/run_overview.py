"""Statements that show runs to people: lists, one with its steps and children, how one stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.job import JobState
from holdfast.model.run import Family, RunFilter, RunNode, RunSummary, StepSummary, Suspension, UnreadSignal
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement

_SQL = blocks("run_overview")

# How much of a run's tree is shown: members of a family, nodes in all, steps of a run.
MEMBERS, NODES, STEPS = 20, 300, 200
# How many columns a summary has, of which the last is what the run waits for, and where its state is.
SUMMARY, STATE = 18, 3


def list_runs(chosen: RunFilter, *, before: int | None, limit: int) -> Statement[list[RunSummary]]:
    """Find runs with ids below *before*, newest first; after `plan_freely`."""
    parameters = (
        [state.value for state in chosen.live_states],
        [state.value for state in chosen.final_states],
        chosen.kind,
        chosen.queue,
        chosen.signal,
        chosen.paused,
        before,
        limit,
    )
    return Statement("list_runs", _SQL["list_runs"], parameters, _summaries)


def _summaries(rows: Sequence[Row]) -> list[RunSummary]:
    return [_summary(row) for row in rows]


def _summary(row: Row) -> RunSummary:
    values = list(row)
    values[STATE] = JobState(values[STATE])
    if values[-1] is not None:
        values[-1] = msgspec.json.decode(values[-1], type=Suspension)
    return RunSummary(*values)


@dataclass(frozen=True, slots=True)
class Branching:
    """A node of a tree, without its children: *above* is its parent, *family_id* where it belongs there."""

    above: int | None
    family_id: int | None
    node: RunNode


def run_tree(run_id: int, depth: int) -> Statement[list[Branching]]:
    """Show a run with what its steps started, down to *depth*, parents first; none: there is no such job."""
    parameters = (run_id, depth, MEMBERS, NODES, STEPS)
    return Statement("run_tree", _SQL["run_tree"], parameters, _branchings)


def _branchings(rows: Sequence[Row]) -> list[Branching]:
    return [
        Branching(row[0], row[1], _node(_summary(row[2 : 2 + SUMMARY]), row[2 + SUMMARY :])) for row in rows
    ]


def _node(run: RunSummary, rest: Row) -> RunNode:
    is_run, steps, count, signals, families = rest
    shown = _decoded(steps, StepSummary)
    left_out = count - len(shown)
    return RunNode(
        run, is_run, None, shown, left_out, _decoded(signals, UnreadSignal), _decoded(families, Family)
    )


def _decoded(text: str, shape: Any) -> Any:
    return msgspec.json.decode(text, type=tuple[shape, ...])


@dataclass(frozen=True, slots=True)
class RunLook:
    """How a job stands for somebody whose act met no run; *is_run* is None where nobody knows its kind."""

    state: JobState
    kind: str
    is_run: bool | None
    paused: bool


def look_at_run(run_id: int) -> Statement[RunLook | None]:
    """Look how a job stands; None where there is no such job."""
    return Statement("look_at_run", _SQL["look_at_run"], (run_id,), _look)


def _look(rows: Sequence[Row]) -> RunLook | None:
    return RunLook(JobState(rows[0][0]), *rows[0][1:]) if rows else None
