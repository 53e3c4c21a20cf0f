"""What the commands of operators share: who acts, why, and the operator who does it."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar, Union

import typer

from holdfast.cli.context import Invocation, invocation
from holdfast.client.operator import Operator
from holdfast.errors import OptionInvalid, SettingInvalid
from holdfast.store.database import Database

if TYPE_CHECKING:
    from holdfast.client.remote.operator import RemoteOperator

T = TypeVar("T")

# Both have the same verbs; a type checker holds every call against each of them.
AnyOperator: TypeAlias = Union[Operator, "RemoteOperator"]

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
    context: typer.Context, work: Callable[[AnyOperator], Awaitable[T]], *, actor: str | None = None
) -> T:
    """Return what *work* answers, done in the name of *actor* or of whoever is logged in.

    With a server set it is done there, in the name of whom the token belongs to.
    """
    call = invocation(context)
    if call.settings().server is not None:
        if actor is not None:
            wanted = "leave it out: over a server the token tells who acts"
            raise OptionInvalid("--actor", actor, wanted)
        return served(call, work)

    async def done(database: Database) -> T:
        return await work(Operator(database, actor or whoami()))

    return call.run(done)


def served(call: Invocation, work: Callable[[RemoteOperator], Awaitable[T]]) -> T:
    """Return what *work* answers, done by the service that the settings name."""
    # Here, so that only commands that talk to a server import what speaks HTTP.
    from holdfast.client.remote.connection import RemoteConnection
    from holdfast.client.remote.operator import RemoteOperator

    settings = call.settings()
    if settings.server is None:
        msg = "server is not set: give --server, or set HOLDFAST_SERVER"
        raise SettingInvalid(msg, setting="server")
    connection = RemoteConnection(settings.server, settings.token)

    async def done() -> T:
        async with connection:
            return await work(RemoteOperator(connection))

    return asyncio.run(done())


def whoami() -> str:
    """Return user and host, as the audit log names who acted."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container the number may have no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
