"""One run for people: a tree of its steps, branches and children, with times and what each one waits for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.cli.moments import ago, clock, span, took
from holdfast.cli.output import cell, print_table, tell
from holdfast.cli.story import act_row
from holdfast.model.audit import AuditRecord
from holdfast.model.job import JobState
from holdfast.model.run import Family, RunNode, RunSummary, StepSummary
from holdfast.model.step import COMPENSATION, MAIN, StepKind, StepState

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

# What is no concern of people in a tree: marks that a run makes for its replay.
HIDDEN = (StepKind.NOW, StepKind.PATCH, StepKind.SEED)
STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "red",
    "running": "cyan",
    "retrying": "yellow",
    "waiting": "yellow",
    "paused": "yellow",
}


def print_tree(node: RunNode, audit: Sequence[AuditRecord], now: datetime) -> None:
    """Print a run with everything below it, and what operators did to it."""
    from rich.console import Console

    tell(f"enqueued  {clock(node.run.created_at)} ({ago(node.run.created_at, now)})")
    for name, other in (("parent", node.run.parent_id), ("fork of", node.run.forked_from)):
        if other is not None:
            tell(f"{name:<9} {other}")
    # Into a pipe nothing is cut: whoever greps wants the whole line.
    console = Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=not sys.stdout.isatty())
    console.print(_run_tree(node, now))
    if audit:
        tell("\noperators")
        print_table(("at", "who", "action", "reason"), [act_row(act) for act in reversed(audit)])


def _run_tree(node: RunNode, now: datetime) -> Tree:
    from rich.tree import Tree

    tree = Tree(_run_line(node.run, now))
    if node.why is not None:
        tree.add(_plain(node.why, "yellow"))
    waits = node.run.suspension
    if waits is not None and waits.paused and waits.pause_reason is not None and node.run.worker_id is None:
        tree.add(_plain(f"after that it waits for {waits.reason}", "dim"))
    for signal in node.signals:
        key = f", key {signal.key}" if signal.key is not None else ""
        tree.add(_plain(f"signal {signal.name} is unread{key}, sent {ago(signal.sent_at, now)}", "dim"))
    if node.steps_left_out:
        more = f"{node.steps_left_out} earlier steps: holdfast runs history {node.run.id} --steps"
        tree.add(_plain(more, "dim"))
    _Branches(node, now).fill(tree)
    return tree


def _run_line(run: RunSummary, now: datetime) -> Text:
    state = "paused" if run.suspension is not None and run.suspension.paused else run.state.value
    line = _plain(f"{run.id} {run.kind} ", "bold").append(state, STYLES.get(state, ""))
    if run.finished_at is not None:
        line.append(f"  in {took(run.finished_at - run.created_at)}, {ago(run.finished_at, now)}")
    if run.state is not JobState.COMPLETED and run.reason:
        line.append(f"  {cell(run.reason.splitlines()[0][:200])}", "red")
    return line


class _Branches:
    """The steps of one run, each in its branch, a branch where it began."""

    def __init__(self, node: RunNode, now: datetime) -> None:
        self._now, self._is_over = now, node.run.state.is_final
        self._families = {family.id: family for family in node.families}
        self._steps: dict[str, list[StepSummary]] = {}
        for step in node.steps:
            if step.kind not in HIDDEN:
                self._steps.setdefault(step.branch, []).append(step)

    def fill(self, tree: Tree) -> None:
        """Put the branches that have no parent here under *tree*; the run's own has no heading."""
        for name in self._steps:
            if self._above(name) is None:
                self._fill_branch(tree if name == MAIN else _add_branch(tree, name), name)

    def _above(self, name: str) -> str | None:
        """Return the nearest branch above that has steps of its own to show."""
        while "/" in name:
            name = name.rpartition("/")[0]
            if name in self._steps:
                return name
        return None

    def _fill_branch(self, tree: Tree, name: str) -> None:
        below = [other for other in self._steps if self._above(other) == name]
        for step in sorted(self._steps[name], key=lambda step: step.place):
            for other in [one for one in below if self._began(one) <= _moment(step)]:
                below.remove(other)
                self._fill_branch(_add_branch(tree, other.removeprefix(f"{name}/")), other)
            self._add_step(tree, step)
        for other in below:
            self._fill_branch(_add_branch(tree, other.removeprefix(f"{name}/")), other)

    def _began(self, name: str) -> float:
        return min(_moment(step) for step in self._steps[name])

    def _add_step(self, tree: Tree, step: StepSummary) -> None:
        leaf = tree.add(_step_line(step, self._now, is_over=self._is_over))
        family = None if step.child_id is None else self._families.get(step.child_id)
        if family is not None:
            for below in _family_trees(family, self._now):
                leaf.children.append(below)


def _moment(step: StepSummary) -> float:
    began = step.started_at or step.finished_at
    return float("inf") if began is None else began.timestamp()


def _add_branch(tree: Tree, name: str) -> Tree:
    return tree.add(_plain("compensation" if name == COMPENSATION else f"branch {name}", "bold"))


def _step_line(step: StepSummary, now: datetime, *, is_over: bool) -> Text:
    what = step.name if step.kind is StepKind.STEP else _kind_line(step)
    state = "unfinished" if is_over and not step.state.is_final else step.state.value
    line = _plain(f"{what} ", "").append(state, STYLES.get(state, ""))
    if step.tries > 1:
        line.append(f"  try {step.tries}")
    if step.finished_at is not None and step.started_at is not None:
        line.append(f"  {took(step.finished_at - step.started_at)}", "dim")
    elif step.started_at is not None and not is_over:
        line.append(f"  since {span(now - step.started_at)}", "dim")
    if step.wake_at is not None and state != "unfinished" and not step.state.is_final:
        line.append(
            f"  {'next try' if step.state is StepState.RETRYING else 'ends'} {ago(step.wake_at, now)}"
        )
    if step.error:
        line.append(f"  {cell(step.error.splitlines()[0][:200])}", "red")
    return line


def _kind_line(step: StepSummary) -> str:
    if step.kind is StepKind.CANCEL:
        return f"stopped before {step.name}"
    return step.name if step.kind.value == step.name else f"{step.kind.value} {step.name}"


def _family_trees(family: Family, now: datetime) -> Iterator[Tree]:
    from rich.tree import Tree

    if sum(family.states.values()) > 1:
        counted = ", ".join(f"{count} {state}" for state, count in sorted(family.states.items()))
        yield Tree(_plain(counted, "bold"))
    for member in family.members:
        yield _run_tree(member, now)
    if family.left_out > 0:
        yield Tree(_plain(f"{family.left_out} more", "dim"))


def _plain(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(cell(text), style)
