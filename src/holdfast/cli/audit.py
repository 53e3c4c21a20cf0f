"""`holdfast audit`: what operators did."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.listing import BeforeOption, LimitOption
from holdfast.cli.moments import clock
from holdfast.cli.operating import AnyOperator, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell


def audit(
    context: typer.Context,
    *,
    subject: Annotated[str | None, typer.Option(help="One thing, such as 'job 42' or 'queue mail'.")] = None,
    by: Annotated[str | None, typer.Option(help="Who acted.")] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what operators did, newest first."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.audit(subject=subject, actor=by, before=before, limit=limit)
        if as_json:
            print_json(found)
            return
        rows = [(act.id, clock(act.at), act.actor, act.action, act.subject, act.reason) for act in found]
        nothing = "nobody has acted yet" if (subject, by, before) == (None, None, None) else "no act fits"
        print_table(("id", "at", "who", "action", "subject", "reason"), rows, nothing=nothing)
        if len(found) == limit:
            tell(f"more: --before {found[-1].id}")

    operate(context, work)
