"""Tokens over HTTP, for admins."""

from __future__ import annotations

from litestar import Router
from litestar.params import FromQuery, JSONBody

from holdfast import errors
from holdfast.client.wire.shape import Because
from holdfast.client.wire.tokens import TokenOrder, TokenPage
from holdfast.model.token import NewToken, Right, TokenRecord
from holdfast.web.api.routes import Before, Id, Limit, act, look, next_page, reason_of
from holdfast.web.given import GivenOperator


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
    return TokenPage(found, next_page(found, limit))


@act("/{token_id:int}/revoke", Right.ADMINISTER, raises=(errors.TokenNotFound,))
async def revoke_token(
    token_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None
) -> TokenRecord:
    """End a token at once, for good."""
    return await operator.tokens.revoke(token_id, reason_of(data))


router = Router("/tokens", route_handlers=[create_token, list_tokens, revoke_token], tags=["tokens"])
