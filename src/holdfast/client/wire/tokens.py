"""Tokens as they travel over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.wire.shape import Why
from holdfast.model.token import Role, TokenRecord


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
