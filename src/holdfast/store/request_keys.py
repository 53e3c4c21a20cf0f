"""Statements about requests that may come twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, count, is_any

_SQL = blocks("request_keys")


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The idempotency key of a request, the token that it came with (0: none) and the hash of its body."""

    token_id: int
    key: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered before, with *answer*, as JSON text."""

    sha256: bytes
    answer: str | None


def reserve_request(key: RequestKey) -> Statement[bool]:
    """Enter a key before its request is done; False: it was answered before."""
    parameters = (key.token_id, key.key, key.sha256)
    return Statement("reserve_request", _SQL["reserve_request"], parameters, is_any)


def answer_request(key: RequestKey, answer: str) -> Statement[bool]:
    """Keep what a request is answered."""
    return Statement("answer_request", _SQL["answer_request"], (key.token_id, key.key, answer), is_any)


def answered_request(key: RequestKey) -> Statement[Answered | None]:
    """Look what a request was answered."""
    return Statement("answered_request", _SQL["answered_request"], (key.token_id, key.key), _answered)


def _answered(rows: Sequence[Row]) -> Answered | None:
    return Answered(*rows[0]) if rows else None


def prune_requests(term: int, seconds: float, limit: int) -> Statement[int]:
    """Forget what requests were answered more than *seconds* ago; answers how many."""
    return Statement("prune_requests", _SQL["prune_requests"], (term, seconds, limit), count)
