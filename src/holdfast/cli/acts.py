"""`holdfast jobs cancel|retry|discard`: one job, several, or all that fit a filter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from holdfast.cli.context import FAILED
from holdfast.cli.filters import filtered
from holdfast.cli.ids import id_argument
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, YesOption, operate
from holdfast.cli.output import JsonOption, counted, print_json, print_table, tell
from holdfast.cli.progress import counting
from holdfast.client.job_operator import meant
from holdfast.client.job_verbs import EVERY_JOB, Swept
from holdfast.errors import HoldfastError, InputInvalid
from holdfast.model.selection import JobFilter
from holdfast.rules.intervention import ALLOWED, PARTICIPLE, Intervention, refusal

SAMPLE = 5

JobIds = Annotated[list[int] | None, id_argument("The ids of jobs.", "[ID]...")]
AllOption = Annotated[bool, typer.Option("--all", help="Every job whose state allows it.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say how many, and which first.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for: to whom it is done, in whose name and how carefully."""

    action: Intervention
    job_ids: list[int]
    chosen: JobFilter
    every: bool
    reason: str | None
    dry_run: bool
    yes: bool
    as_json: bool


ABOUT = {
    Intervention.CANCEL: "Cancel jobs: one that nobody holds ends at once, one that runs is stopped.",
    Intervention.RETRY: (
        "Take failed or cancelled jobs up again under their ids, or run scheduled ones now.\n\n"
        "By a filter without --state, failed jobs alone are meant."
    ),
    Intervention.DISCARD: "End jobs as failed that nobody holds; one that runs has to be cancelled instead.",
}


def _command(action: Intervention) -> Callable[..., None]:
    """Return the command that does *action*: the three differ in nothing else."""

    @filtered
    def act(
        context: typer.Context,
        job_ids: JobIds = None,
        *,
        chosen: JobFilter,
        every: AllOption = False,
        reason: ReasonOption = None,
        actor: ActorOption = None,
        dry_run: DryRunOption = False,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        order = Order(
            action=action,
            job_ids=job_ids or [],
            chosen=chosen,
            every=every,
            reason=reason,
            dry_run=dry_run,
            yes=yes,
            as_json=as_json,
        )
        _carry_out(context, order, actor)

    return act


def add_to(app: typer.Typer) -> None:
    """Put the three commands under `holdfast jobs`."""
    for action in Intervention:
        app.command(action.value, help=ABOUT[action])(_command(action))


def _carry_out(context: typer.Context, order: Order, actor: str | None) -> None:
    by_filter = order.every or order.chosen != EVERY_JOB
    if bool(order.job_ids) == by_filter:
        both = "job ids and a filter are given: " if by_filter else ""
        msg = f"{both}name job ids, or a filter such as --kind, or --all{'; not both' if by_filter else ''}"
        raise InputInvalid(msg)
    if by_filter:
        operate(context, lambda operator: _by_filter(operator, order), actor=actor)
    elif not operate(context, lambda operator: _one_by_one(operator, order), actor=actor):
        raise typer.Exit(FAILED)


async def _one_by_one(operator: AnyOperator, order: Order) -> bool:
    """Act on each job that was named; a refusal is told and does not stop the others."""
    swept = Swept()
    for job_id in order.job_ids:
        try:
            told = await _one(operator, order, job_id)
            swept = Swept(swept.changed + 1, swept.passed_over)
        except HoldfastError as error:
            if len(order.job_ids) == 1:
                raise
            tell(f"holdfast: {error}", err=True)
            swept = Swept(swept.changed, swept.passed_over + 1)
            continue
        if not order.as_json:
            tell(told)
    if order.as_json:
        print_json({"count": swept.changed} if order.dry_run else swept)
    return not swept.passed_over


async def _one(operator: AnyOperator, order: Order, job_id: int) -> str:
    done = PARTICIPLE[order.action]
    if order.dry_run:
        state = (await operator.jobs.show(job_id)).state
        if state not in ALLOWED[order.action]:
            raise refusal(job_id, order.action, state)
        return f"job {job_id} is {state} and would be {done}"
    match order.action:
        case Intervention.CANCEL:
            if not await operator.jobs.cancel(job_id, order.reason):
                return f"job {job_id} is held: its worker was asked to stop it"
        case Intervention.RETRY:
            await operator.jobs.retry(job_id, order.reason)
        case Intervention.DISCARD:
            await operator.jobs.discard(job_id, order.reason)
    return f"job {job_id} is {done}"


Sweep = Callable[..., Awaitable[Swept]]


def _sweep(operator: AnyOperator, action: Intervention) -> Sweep:
    sweeps: dict[Intervention, Sweep] = {
        Intervention.CANCEL: operator.jobs.cancel_many,
        Intervention.RETRY: operator.jobs.retry_many,
        Intervention.DISCARD: operator.jobs.discard_many,
    }
    return sweeps[action]


async def _by_filter(operator: AnyOperator, order: Order) -> None:
    chosen = meant(order.action, order.chosen)
    number = await operator.jobs.count(chosen)
    if order.dry_run:
        await _print_sample(operator, order, chosen, number)
        return
    if number and not order.yes:
        _ask(order, number)
    with counting(PARTICIPLE[order.action], number) as progress:
        swept = await _sweep(operator, order.action)(
            chosen, order.reason, progress=lambda swept: progress(swept.seen)
        )
    if order.as_json:
        print_json(swept)
        return
    passed = f", {swept.passed_over:,} passed over" if swept.passed_over else ""
    tell(f"{counted(swept.changed, 'job')} {PARTICIPLE[order.action]}{passed}")


async def _print_sample(operator: AnyOperator, order: Order, chosen: JobFilter, number: int) -> None:
    sample = await operator.jobs.find(chosen, limit=SAMPLE)
    if order.as_json:
        print_json({"count": number, "sample": sample})
        return
    tell(
        f"{counted(number, 'job')} would be {PARTICIPLE[order.action]}" + (", the newest:" if sample else "")
    )
    if sample:
        print_table(
            ("id", "state", "kind", "queue"), [(job.id, job.state, job.kind, job.queue) for job in sample]
        )


def _ask(order: Order, number: int) -> None:
    if not sys.stdin.isatty():
        fit = "fits" if number == 1 else "fit"
        msg = f"{counted(number, 'job')} {fit} and nobody can be asked here: say --yes"
        raise InputInvalid(msg)
    # On stderr as a whole, so that what is printed stays the answer alone.
    asked = f"{counted(number, 'job')} will be {PARTICIPLE[order.action]}. Go on? [y/N] "
    typer.echo(asked, nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(FAILED)
