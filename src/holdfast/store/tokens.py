"""Statements about tokens."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.model.token import Role, TokenRecord
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, count, first_value

_SQL = blocks("tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A token to be made: for whom, in which role and for how many *seconds*; None is for ever."""

    name: str
    sha256: bytes
    role: Role
    created_by: str
    seconds: float | None = None
    worker_id: int | None = None
    job_id: int | None = None
    attempt: int | None = None


def create_token(grant: Grant) -> Statement[TokenRecord | None]:
    """Make a token; None where a valid one has its name."""
    parameters = (
        grant.name,
        grant.sha256,
        grant.role.value,
        grant.worker_id,
        grant.job_id,
        grant.attempt,
        grant.created_by,
        grant.seconds,
    )
    return Statement("create_token", _SQL["create_token"], parameters, _token)


def use_tokens(hashes: Sequence[bytes]) -> Statement[list[TokenRecord | None]]:
    """Find the valid tokens with these hashes and note that they are used; None where there is none."""
    return Statement("use_tokens", _SQL["use_tokens"], (list(hashes),), partial(_used, hashes))


def _used(hashes: Sequence[bytes], rows: Sequence[Row]) -> list[TokenRecord | None]:
    found: list[TokenRecord | None] = [None] * len(hashes)
    for nth, sha256, *record in rows:
        # The index has found it by its hash, in a time that tells nothing of its text; this comparison says
        # so for whoever reads the code.
        if hmac.compare_digest(sha256, hashes[nth - 1]):
            found[nth - 1] = _record(record)
    return found


def has_tokens() -> Statement[bool]:
    """Look whether a token was ever made."""
    return Statement("has_tokens", _SQL["has_tokens"], (), first_value)


def superseded_runner(sha256: bytes) -> Statement[int | None]:
    """Find the runner whose token this was before another registration; None where it is none of those."""
    return Statement("superseded_runner", _SQL["superseded_runner"], (sha256,), first_value)


def list_tokens(
    *, all_states: bool = False, before: int | None = None, limit: int = 50
) -> Statement[list[TokenRecord]]:
    """Find tokens with ids below *before*, newest first."""
    return Statement("list_tokens", _SQL["list_tokens"], (all_states, before, limit), _tokens)


def _tokens(rows: Sequence[Row]) -> list[TokenRecord]:
    return [_record(row) for row in rows]


def revoke_token(token_id: int) -> Statement[TokenRecord | None]:
    """End a token at once; None where there is none or it was revoked before."""
    return Statement("revoke_token", _SQL["revoke_token"], (token_id,), _token)


def find_token(token_id: int) -> Statement[TokenRecord | None]:
    """Find a token, valid or not."""
    return Statement("find_token", _SQL["find_token"], (token_id,), _token)


def _token(rows: Sequence[Row]) -> TokenRecord | None:
    return _record(rows[0]) if rows else None


def _record(row: Row) -> TokenRecord:
    values: list[Any] = list(row)
    values[2] = Role(values[2])
    return TokenRecord(*values)


def prune_tokens(term: int, seconds: float, limit: int) -> Statement[int]:
    """Forget tokens of machines that ended more than *seconds* ago; answers how many."""
    return Statement("prune_tokens", _SQL["prune_tokens"], (term, seconds, limit), count)
