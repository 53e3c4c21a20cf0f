"""`holdfast runs`: list, show, history; what is done to runs is in `cli.run_acts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.ids import id_argument
from holdfast.cli.listing import BeforeOption, LimitOption, Listing, show_page
from holdfast.cli.moments import ago, clock, took
from holdfast.cli.operating import AnyOperator, group, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell
from holdfast.cli.run_tree import print_tree
from holdfast.client.run_operator import DEEPEST, DEEPEST_OF_ALL
from holdfast.errors import OptionInvalid
from holdfast.model.job import JobState
from holdfast.model.run import RunFilter, RunSummary
from holdfast.model.step import MAIN, ActivityRecord, StepRecord

app = group("See the runs of workflows and act on them.")

RunId = Annotated[int, id_argument("The id of the run, which is that of its job.")]
COLUMNS = ("id", "state", "kind", "queue", "enqueued", "since", "parent", "waits for, or reason")
CALLS = ("line", "at", "attempt", "step", "try", "took", "result", "error")
PLACES = ("place", "kind", "name", "state", "tries", "began", "ended", "child", "result", "error")
# How much of a value a table shows.
WIDEST = 60


@app.command("list")
def list_runs(
    context: typer.Context,
    *,
    state: Annotated[
        list[JobState] | None, typer.Option(help="In this state; may be repeated.", metavar="STATE")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of this kind; without @VERSION, of every version.", metavar="KIND")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="In this queue.", metavar="NAME")] = None,
    waits_for: Annotated[
        str | None, typer.Option("--waits-for", help="Waiting for this signal.", metavar="SIGNAL")
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Held back by an operator, or by code that does not fit.")
    ] = False,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first, with what each one waits for.

    Examples: `holdfast runs list --state waiting --kind fulfil`, `holdfast runs list --waits-for approved`.
    """
    chosen = RunFilter(states=tuple(state or ()), kind=kind, queue=queue, signal=waits_for, paused=paused)
    show_page(
        context,
        lambda operator: operator.runs.find(chosen, limit=limit, before=before),
        Listing(COLUMNS, _row, nothing="no run fits"),
        limit=limit,
        as_json=as_json,
    )


def _row(run: RunSummary, now: datetime) -> tuple[object, ...]:
    since = run.finished_at or run.started_at or (run.suspension and run.suspension.since) or run.created_at
    return (
        run.id,
        "paused" if run.suspension is not None and run.suspension.paused else run.state,
        run.kind,
        run.queue,
        ago(run.created_at, now),
        ago(since, now),
        run.parent_id,
        _told(run, now),
    )


def _told(run: RunSummary, now: datetime) -> str | None:
    waits = run.suspension
    if waits is None:
        return None if run.reason is None else _short(run.reason.splitlines()[0])
    if waits.paused and waits.pause_reason is not None:
        return _short(waits.pause_reason)
    text = _short(waits.reason)
    return text if waits.wake_at is None or waits.paused else f"{text} ({ago(waits.wake_at, now)})"


@app.command()
def show(
    context: typer.Context,
    run_id: RunId,
    *,
    depth: Annotated[
        int, typer.Option(min=0, max=DEEPEST_OF_ALL, help="How far down its children.")
    ] = DEEPEST,
    as_json: JsonOption = False,
) -> None:
    """Show a run as a tree: steps, branches, children, times, and why it waits.

    Example: `holdfast runs show 42`.
    """

    async def work(operator: AnyOperator) -> None:
        node = await operator.runs.show(run_id, depth=depth)
        audit = await operator.audit(subject=f"job {run_id}")
        if as_json:
            print_json({"tree": node, "audit": audit})
        else:
            print_tree(node, audit, await operator.now())

    operate(context, work)


@app.command()
def history(
    context: typer.Context,
    run_id: RunId,
    *,
    places: Annotated[
        bool, typer.Option("--steps", help="What the run remembers, instead of the log of calls.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(help="Only what follows: the last line of the former page.", metavar="LINE")
    ] = None,
    limit: LimitOption = 200,
    as_json: JsonOption = False,
) -> None:
    """Print the log of a run's step calls with parameters, result and duration, oldest first.

    With --steps, what the run remembers instead: each place with its state and result.
    Examples: `holdfast runs history 42`, `holdfast runs history 42 --steps --json`.
    """

    show_page = _show_places if places else _show_calls
    operate(context, lambda operator: show_page(operator, run_id, _Page(after, limit, as_json)))


@dataclass(frozen=True, slots=True)
class _Page:
    """Which part of a history is wanted, and how."""

    after: str | None
    limit: int
    as_json: bool

    def show(self, records: Sequence[Any], columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a page; the first column of its last row is where the next one begins."""
        if self.as_json:
            print_json(records)
            return
        print_table(columns, rows, nothing="nothing is recorded")
        if len(rows) == self.limit:
            tell(f"more: --after {rows[-1][0]}")


async def _show_places(operator: AnyOperator, run_id: int, page: _Page) -> None:
    steps = await operator.runs.history(run_id, after=_place(page.after), limit=page.limit)
    page.show(steps, PLACES, [_step(step) for step in steps])


async def _show_calls(operator: AnyOperator, run_id: int, page: _Page) -> None:
    calls = await operator.runs.activities(run_id, after=_line(page.after), limit=page.limit)
    page.show(calls, CALLS, [_call(call) for call in calls])


def _place(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    branch, _, place = text.rpartition(":")
    if not branch or not place.isdecimal() or len(place) > 9:
        raise OptionInvalid("--after", text, "give a branch and a place such as main:7")
    return branch, int(place)


def _line(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isdecimal() or len(text) > 18:
        raise OptionInvalid("--after", text, "give the number of a line such as 117")
    return int(text)


def _call(call: ActivityRecord) -> tuple[object, ...]:
    return (
        call.id,
        clock(call.started_at),
        f"#{call.attempt}",
        call.step if call.branch == MAIN else f"{call.branch}: {call.step}",
        call.tried,
        took(timedelta(seconds=call.seconds)),
        _value(call.result),
        _error(call.error),
    )


def _step(step: StepRecord) -> tuple[object, ...]:
    return (
        f"{step.branch}:{step.place}",
        step.kind,
        step.name,
        step.state,
        step.tries,
        clock(step.started_at),
        clock(step.finished_at),
        step.child_id,
        _value(step.result),
        _error(step.error),
    )


def _error(error: Any) -> str | None:
    if not isinstance(error, dict) or "type" not in error:
        # Redacted by a rule.
        return _value(error)
    text = f"{error.get('type')}: {error.get('message')}".strip()
    return _short(text.splitlines()[0])


def _value(value: Any) -> str | None:
    return None if value is None else _short(msgspec.json.encode(value).decode())


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
