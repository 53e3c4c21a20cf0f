"""Tokens: who may come in over HTTP, and as what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a token is for.

    The first four are for people and programs.  *registrar* lets machines become runners, *runner* is one
    such machine's own and *assignment* is good for one attempt of one job.
    """

    ADMIN = "admin"
    OPERATOR = "operator"
    PRODUCER = "producer"
    VIEWER = "viewer"
    REGISTRAR = "registrar"
    RUNNER = "runner"
    ASSIGNMENT = "assignment"


# Roles whose tokens an admin makes; the others are made by the runner protocol.
GIVEN_ROLES = (Role.ADMIN, Role.OPERATOR, Role.PRODUCER, Role.VIEWER, Role.REGISTRAR)


class Right(StrEnum):
    """What a route asks of whoever calls it."""

    READ = "read"
    ENQUEUE = "enqueue"
    OPERATE = "operate"
    ADMINISTER = "administer"
    REGISTER = "register"
    RUN = "run"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token without its text, which nobody knows but its owner.

    *worker_id* is the runner that it speaks for; with *job_id* and *attempt* it is good for these alone.
    """

    id: int
    name: str
    role: Role
    worker_id: int | None
    job_id: int | None
    attempt: int | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made: *text* is shown this once."""

    text: str
    record: TokenRecord


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request: by which token, in which role, from which network address.

    *token* is None where the service has no tokens at all and so asks for none.
    """

    name: str
    role: Role
    address: str
    token: TokenRecord | None = None

    @property
    def token_id(self) -> int:
        """The id of the token, 0 where there is none."""
        return 0 if self.token is None else self.token.id
