"""Tokens over HTTP, for admins."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Router
from litestar.params import FromQuery, JSONBody

from holdfast import errors
from holdfast.model.token import NewToken, Right, Role, TokenRecord
from holdfast.web.api.routes import Because, Before, Id, Limit, Why, act, look, reason_of
from holdfast.web.given import GivenOperator


class TokenOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A token to be made; it is good for *expires* seconds, or until it is revoked."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    role: Role
    expires: Annotated[float, msgspec.Meta(ge=1, le=3_153_600_000)] | None = None
    reason: Why = None


class TokenPage(msgspec.Struct, frozen=True):
    """Tokens, newest first; *next* is *before* of the next page, null on the last one."""

    tokens: list[TokenRecord]
    next: int | None


@act("/", Right.ADMINISTER, status=201, raises=(errors.TokenTaken,))
async def create_token(data: JSONBody[TokenOrder], operator: GivenOperator) -> NewToken:
    """Make a token; its text is in this answer and nowhere else."""
    return await operator.tokens.create(data.name, data.role, expires=data.expires, reason=data.reason)


@look("/", right=Right.ADMINISTER)
async def list_tokens(
    operator: GivenOperator, ended: FromQuery[bool] = False, limit: Limit = 50, before: Before = None
) -> TokenPage:
    """List tokens, never their text."""
    found = list(await operator.tokens.find(ended=ended, before=before, limit=limit))
    return TokenPage(found, found[-1].id if len(found) == limit else None)


@act("/{token_id:int}/revoke", Right.ADMINISTER, raises=(errors.TokenNotFound,))
async def revoke_token(
    token_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None
) -> TokenRecord:
    """End a token at once, for good."""
    return await operator.tokens.revoke(token_id, reason_of(data))


router = Router("/tokens", route_handlers=[create_token, list_tokens, revoke_token], tags=["tokens"])
