"""What the commands of operators share: who acts, why, and the operator who does it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from holdfast.cli.context import invocation
from holdfast.client.operator import Operator
from holdfast.store.database import Database

T = TypeVar("T")

ReasonOption = Annotated[str | None, typer.Option(help="Why; kept in the audit log.", metavar="TEXT")]
ActorOption = Annotated[
    str | None, typer.Option(help="Who acts, for the audit log; user@host if not given.", metavar="NAME")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
CreateOption = Annotated[bool, typer.Option("--create", help="Also a queue that nobody has used yet.")]


def group(about: str) -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)


def operate(
    context: typer.Context, work: Callable[[Operator], Awaitable[T]], *, actor: str | None = None
) -> T:
    """Return what *work* answers, done in the name of *actor* or of whoever is logged in."""

    async def done(database: Database) -> T:
        return await work(Operator(database, actor or whoami()))

    return invocation(context).run(done)


def whoami() -> str:
    """Return user and host, as the audit log names who acted."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container the number may have no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
