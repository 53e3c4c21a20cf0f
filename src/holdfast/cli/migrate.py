"""`holdfast migrate`: brings the schema up to this release."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.context import invocation
from holdfast.cli.output import tell
from holdfast.store import migrate as steps
from holdfast.store.database import Database


def migrate(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if behind.")] = False,
) -> None:
    """Bring the schema up to this release; safe to run twice, also at once."""

    async def work(database: Database) -> None:
        if check:
            await steps.check(database)
            tell(f"schema {database.schema} is at {steps.newest()}, as this release needs it")
            return
        applied = await steps.migrate(database)
        for step in applied:
            tell(f"applied {step.number:04} {step.title}")
        doing = "is now" if applied else "was already"
        tell(f"schema {database.schema} {doing} at {steps.newest()}")

    invocation(context).run(work, check_schema=False)
