"""`holdfast runs signal|pause|resume|cancel|retry|fork`: what is done to runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.operating import ActorOption, ReasonOption, operate
from holdfast.cli.output import JsonOption, print_json, tell
from holdfast.cli.runs import RunId
from holdfast.errors import InputInvalid
from holdfast.model.step import MAIN


def add_to(app: typer.Typer) -> None:
    """Put the commands under `holdfast runs`."""
    for command in (signal, pause, resume, cancel, retry, fork):
        app.command()(command)


def signal(
    context: typer.Context,
    run_id: RunId,
    name: Annotated[str, typer.Argument(help="The name of the signal.")],
    payload: Annotated[
        str | None, typer.Argument(help="What it says, as JSON; - reads it from stdin.", metavar="[JSON]")
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(help="Sent twice with the same key, it counts once.", metavar="KEY")
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a signal to a run, before or while it waits for it.

    Example: `holdfast runs signal 42 approved '{"by": "ada"}' --key mail-7`.
    """
    value = _payload(payload)
    sent = operate(
        context,
        lambda operator: operator.runs.signal(run_id, name, value, key=key, reason=reason),
        actor=actor,
    )
    if as_json:
        print_json({"id": sent})
    else:
        tell(f"signal {sent} {name} is sent to run {run_id}")


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() if text == "-" else text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        msg = f"the payload is not JSON ({error}): a text needs quotes of its own, such as '\"yes\"'"
        raise InputInvalid(msg) from None


def pause(
    context: typer.Context,
    run_id: RunId,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a run back, with its children that follow it; one that runs parks at its next step.

    Example: `holdfast runs pause 42 --reason "customer called"`.
    """
    met = operate(context, lambda operator: operator.runs.pause(run_id, reason), actor=actor)
    _print_met(run_id, "paused", met, as_json)


def resume(
    context: typer.Context,
    run_id: RunId,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused run go on, or one whose code did not fit its record.

    Example: `holdfast runs resume 42`.  A failed run is taken up by `holdfast runs retry`.
    """
    met = operate(context, lambda operator: operator.runs.resume(run_id, reason), actor=actor)
    _print_met(run_id, "resumed", met, as_json)


def _print_met(run_id: int, done: str, met: Sequence[int], as_json: bool) -> None:
    children = [job_id for job_id in met if job_id != run_id]
    if as_json:
        print_json({"id": run_id, "children": children})
        return
    also = f", and {len(children)} of its children" if children else ""
    tell(f"run {run_id} is {done}{also}")


def cancel(
    context: typer.Context,
    run_id: RunId,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a run, with its children that follow it; it makes up first for the steps that it has done.

    Example: `holdfast runs cancel 42 --reason "wrong customer"`.
    """
    ended = operate(context, lambda operator: operator.runs.cancel(run_id, reason), actor=actor)
    if as_json:
        print_json({"id": run_id, "ended": ended})
    elif ended:
        tell(f"run {run_id} is cancelled")
    else:
        tell(f"run {run_id} is being cancelled: it makes up for its steps first")


def retry(
    context: typer.Context,
    run_id: RunId,
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a failed or cancelled run up from its failed step; what had succeeded is not done again.

    Example: `holdfast runs retry 42`.
    """
    operate(context, lambda operator: operator.runs.retry(run_id, reason), actor=actor)
    if as_json:
        print_json({"id": run_id})
    else:
        tell(f"run {run_id} is taken up from its failed step")


def fork(
    context: typer.Context,
    run_id: RunId,
    *,
    at: Annotated[str, typer.Option(help="The finished step behind which it begins.", metavar="STEP")],
    branch: Annotated[str, typer.Option(help="The branch of the step.", metavar="NAME")] = MAIN,
    place: Annotated[
        int | None, typer.Option(min=0, help="Of several steps of that name, the one at this place.")
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue a new run that remembers what another one had recorded up to the end of a step.

    Example: `holdfast runs fork 42 --at charge_card`.
    """
    forked = operate(
        context,
        lambda operator: operator.runs.fork(run_id, at=at, branch=branch, place=place, reason=reason),
        actor=actor,
    )
    if as_json:
        print_json({"id": forked, "forked_from": run_id})
    else:
        tell(f"run {forked} goes on behind step {at} of run {run_id}")
