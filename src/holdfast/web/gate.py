"""The gate: who makes a request, and whether they may.

Every route says in its ``right`` what it asks of a caller; one that says None is open to everybody.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, TypeAlias

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from holdfast.client.token_operator import token_hash
from holdfast.errors import AccessDenied, InputInvalid, OriginRefused, RunnerSuperseded, TokenInvalid
from holdfast.model.token import Caller, Right, Role, TokenRecord
from holdfast.rules.access import allows
from holdfast.rules.pace import Pace
from holdfast.store import tokens
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database
from holdfast.web.config import LOOPBACK, WebConfig
from holdfast.web.pacing import Pacer

# A token that was good is taken for good for so long, in seconds, while it has not expired; a revocation is
# heard of at once.
REMEMBERED = 5.0
# That of a runner for longer: whatever it says is checked once more against the token that is its own.
# That of an assignment is looked up each time, for it ends with the assignment, and no server tells others of
# an end; it is remembered as one that nobody has guessed.
REMEMBERED_RUNNER = 60.0
MOST_REMEMBERED = 20_000
ANONYMOUS = "anonymous"
# Whoever passes a request on for others says so by one of these, or by one of the sort.
PASSED_ON = (b"forwarded", b"via", b"x-real-ip")
PASSED_ON_SORT = b"x-forwarded-"

AnyConnection = ASGIConnection[Any, Any, Any, Any]
# Good tokens by their hashes: until when each counts, and after how many revocations it was looked up.
Memory: TypeAlias = OrderedDict[bytes, tuple[TokenRecord, float, int]]


class Gate:
    """Lets callers in who show a valid token whose role has the route's right.

    While no token was ever made, whoever asks on this machine is let in as an admin.
    """

    def __init__(self, database: Database, config: WebConfig) -> None:
        self._database = database
        self._requests = Pacer("requests", Pace(config.rate, 2 * config.rate))
        self._looks = Pacer("wrong tokens", Pace(config.rate, 2 * config.rate))
        self._failures = Pacer("failures to log in", Pace(config.failures_rate, config.failures_burst))
        self._known: Memory = OrderedDict()
        self._revocations = 0
        # Programs that log show theirs with each piece: what comes at once is looked up at once.
        self._lookups = Batcher(self._look_up)
        self._has_tokens = False

    async def __call__(self, connection: AnyConnection, handler: BaseRouteHandler) -> None:
        """Let a request in or raise; its caller is then ``request.auth``."""
        right: Right | None = handler.opt.get("right")
        if right is not None:
            await self.admit(connection.scope, right)

    async def admit(self, scope: Scope, right: Right) -> None:
        """Let a request in that asks for *right*, or raise; its caller is then ``scope["auth"]``."""
        if b"%00" in scope["query_string"] or "\x00" in scope["path"]:
            msg = "the address of the request holds a NUL character, which PostgreSQL cannot store"
            raise InputInvalid(msg)
        caller = await self._caller(scope)
        self._requests.take(caller.address if caller.token is None else caller.token.id)
        if not allows(caller.role, right):
            raise AccessDenied(caller.role, right)
        scope["user"] = caller.name
        scope["auth"] = caller

    async def check(self, scope: Scope) -> None:
        """Raise where the token of a request that was let in is not good any more."""
        if scope["auth"].token is not None:
            await self._caller(scope)

    def notified(self, topic: str, _rest: str) -> None:
        """Take no token for good any more without a look: any may have been revoked."""
        if topic in ("tokens", "reconnected"):
            self._revocations += 1

    async def has_tokens(self) -> bool:
        """Look whether a token was ever made."""
        if not self._has_tokens:
            self._has_tokens = await self._database.run(tokens.has_tokens())
        return self._has_tokens

    async def _caller(self, scope: Scope) -> Caller:
        address = _address(scope)
        shown = _header(scope, b"authorization")
        if shown is None and not await self.has_tokens():
            _check_local(scope)
            return Caller(ANONYMOUS, Role.ADMIN, address)
        text = _bearer(shown)
        token = await self._token(token_hash(text), address)
        return Caller(token.name, token.role, address, token)

    async def _token(self, sha256: bytes, address: str) -> TokenRecord:
        known = self._remembered(sha256)
        if known is not None and known.role is not Role.ASSIGNMENT:
            return known
        if sha256 not in self._known:
            # Nobody guesses 256 bits, and others at that address show good ones for the first time, as with
            # each assignment: only who would keep the database busy is not even looked up.
            self._looks.check(address)
        # The answer may be older than a revocation that is heard of meanwhile: then it does not count either.
        revocations = self._revocations
        token = await self._lookups.submit(sha256)
        if token is None:
            if self._known.pop(sha256, None) is None:
                self._looks.take(address)
                self._failures.take(address)
            raise await self._refusal(sha256)
        self._remember(sha256, token, revocations)
        return token

    async def _look_up(self, hashes: Sequence[bytes]) -> Sequence[TokenRecord | None]:
        return await self._database.run(tokens.use_tokens(hashes))

    def _remembered(self, sha256: bytes) -> TokenRecord | None:
        token, until, revocations = self._known.get(sha256, (None, 0.0, 0))
        return token if until > time.monotonic() and revocations == self._revocations else None

    def _remember(self, sha256: bytes, token: TokenRecord, revocations: int) -> None:
        seconds = REMEMBERED_RUNNER if token.role in (Role.RUNNER, Role.ASSIGNMENT) else REMEMBERED
        if token.expires_at is not None:
            seconds = min(seconds, (token.expires_at - datetime.now(UTC)).total_seconds())
        self._known[sha256] = (token, time.monotonic() + seconds, revocations)
        self._known.move_to_end(sha256)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    async def _refusal(self, sha256: bytes) -> TokenInvalid | RunnerSuperseded:
        """Return why a token is not good; a runner has to know whether another one has its name."""
        worker_id = await self._database.run(tokens.superseded_runner(sha256))
        if worker_id is not None:
            return RunnerSuperseded(worker_id)
        problem = "this token was never made, is revoked or has expired"
        return TokenInvalid(problem)


def _address(scope: Scope) -> str:
    """Return where a request comes from; a proxy passes on whatever its callers call their address."""
    client = scope["client"]
    # What stands behind the % is no part of an address, and may be anything too.
    address = "" if client is None else client[0].partition("%")[0]
    try:
        ip_address(address)
    except ValueError:
        return "unknown"
    return address


def _bearer(shown: str | None) -> str:
    scheme, _, text = (shown or "").partition(" ")
    if scheme.lower() != "bearer" or not text:
        problem = "a token is missing"
        raise TokenInvalid(problem)
    return text


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def _check_local(scope: Scope) -> None:
    """Raise `OriginRefused` where a proxy or a browser on this machine asks for somebody elsewhere."""
    for name, value in scope["headers"]:
        if name in PASSED_ON or name.startswith(PASSED_ON_SORT):
            raise OriginRefused(name.decode("latin-1"), value.decode("latin-1"))
    host = _header(scope, b"host") or ""
    if host.rsplit(":", 1)[0].strip("[]") not in LOOPBACK:
        raise OriginRefused("Host", host)
    origin = _header(scope, b"origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise OriginRefused("Origin", origin)
