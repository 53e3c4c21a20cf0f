"""What an operator sees of tokens and does to them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from holdfast.app.options import checked_text, seconds_from
from holdfast.errors import OptionInvalid, TokenNotFound, TokenTaken
from holdfast.model.audit import Mandate
from holdfast.model.token import GIVEN_ROLES, NewToken, Role, TokenRecord
from holdfast.store import audit, tokens
from holdfast.store.database import Database
from holdfast.store.tokens import Grant

# Begins every token, so that whoever scans code and logs for secrets finds one that got lost.
PREFIX = "holdfast_"
SECRET_BYTES = 32
LONGEST_NAME = 200


class TokenOperator:
    """Makes, lists and revokes tokens."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def create(
        self, name: str, role: Role, *, expires: timedelta | float | None = None, reason: str | None = None
    ) -> NewToken:
        """Make a token that is good for *expires* (seconds or a timedelta), or until it is revoked.

        Its text is known to nobody after this.  Raises `TokenTaken`, and `OptionInvalid` for a role that
        only the runner protocol gives.
        """
        checked_text("name", name, most=LONGEST_NAME)
        if role not in GIVEN_ROLES:
            raise OptionInvalid("role", role.value, f"one of {', '.join(GIVEN_ROLES)} can be given")
        seconds = None if expires is None else seconds_from("expires", expires, least=1)
        text = token_text()
        grant = Grant(name=name, sha256=token_hash(text), role=role, created_by=self._actor, seconds=seconds)
        async with self._database.transaction() as connection:
            record = await self._database.run(tokens.create_token(grant), connection)
            if record is None:
                raise TokenTaken(name)
            after = {"name": name, "role": role, "expires_at": record.expires_at}
            note = audit.write_audit(
                Mandate(self._actor, reason), "token.create", f"token {record.id}", {"after": after}
            )
            await self._database.run(note, connection)
        return NewToken(text, record)

    async def find(
        self, *, ended: bool = False, before: int | None = None, limit: int = 50
    ) -> Sequence[TokenRecord]:
        """Return valid tokens with ids below *before*, newest first; with *ended* all that ever were."""
        return await self._database.run(tokens.list_tokens(all_states=ended, before=before, limit=limit))

    async def revoke(self, token_id: int, reason: str | None = None) -> TokenRecord:
        """End a token at once, which may be revoked already; raises `TokenNotFound`."""
        async with self._database.transaction() as connection:
            revoked = await self._database.run(tokens.revoke_token(token_id), connection)
            if revoked is not None:
                kept = {"name": revoked.name, "role": revoked.role, "expires_at": revoked.expires_at}
                detail = {
                    "before": {**kept, "revoked_at": None},
                    "after": {**kept, "revoked_at": revoked.revoked_at},
                }
                note = audit.write_audit(
                    Mandate(self._actor, reason), "token.revoke", f"token {token_id}", detail
                )
                await self._database.run(note, connection)
                return revoked
            former = await self._database.run(tokens.find_token(token_id), connection)
        if former is None:
            raise TokenNotFound(token_id)
        return former


def token_text() -> str:
    """Return the text of a new token: 256 bits that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def token_hash(text: str) -> bytes:
    """Return what is kept of a token's text."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
