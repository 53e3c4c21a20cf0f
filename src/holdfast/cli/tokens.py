"""`holdfast tokens`: create, list, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.ids import id_argument
from holdfast.cli.listing import BeforeOption, LimitOption, Listing, show_page
from holdfast.cli.moments import ago, clock, seconds
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, json_text, print_secret, tell
from holdfast.model.token import Role, TokenRecord

app = group("Make, see and revoke the tokens that the service asks for.")

COLUMNS = ("id", "name", "role", "state", "made", "by", "expires", "used")


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who will use it; the audit log names them so.")],
    *,
    role: Annotated[
        Role, typer.Option(help="admin, operator, producer, viewer or registrar.", metavar="ROLE")
    ],
    expires: Annotated[
        str | None, typer.Option(help="For how long it is good, such as 90d; else until it is revoked.")
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it, this once; Holdfast keeps only its hash."""
    length = seconds("--expires", expires)

    async def work(operator: AnyOperator) -> None:
        made = await operator.tokens.create(name, role, expires=length, reason=reason)
        record = made.record
        try:
            print_secret(json_text({"token": made.text, "record": record}) if as_json else made.text)
        except OSError:
            await operator.tokens.revoke(record.id, "its text could not be shown")
            raise
        if not as_json:
            until = "" if record.expires_at is None else f" until {clock(record.expires_at)} UTC"
            tell(f"token {record.id}: {role.value} {name}{until}; it is not shown again", err=True)

    operate(context, work, actor=actor)


@app.command("list")
def list_tokens(
    context: typer.Context,
    *,
    ended: Annotated[bool, typer.Option("--all", help="Those too that are no longer valid.")] = False,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tokens, newest first; never their text."""
    show_page(
        context,
        lambda operator: operator.tokens.find(ended=ended, before=before, limit=limit),
        Listing(COLUMNS, _row, nothing="there is no token"),
        limit=limit,
        as_json=as_json,
    )


def _row(token: TokenRecord, now: datetime) -> tuple[object, ...]:
    return (
        token.id,
        token.name,
        token.role,
        _state(token, now),
        ago(token.created_at, now),
        token.created_by,
        None if token.expires_at is None else f"{clock(token.expires_at)} UTC",
        ago(token.last_used_at, now),
    )


def _state(token: TokenRecord, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.expires_at is None or token.expires_at > now else "expired"


@app.command()
def revoke(
    context: typer.Context,
    token_ids: Annotated[list[int], id_argument("The ids of tokens.", "ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """End tokens at once, for good."""

    async def work(operator: AnyOperator) -> None:
        for token_id in token_ids:
            revoked = await operator.tokens.revoke(token_id, reason)
            tell(f"token {token_id} ({revoked.name}) is revoked")

    operate(context, work, actor=actor)
