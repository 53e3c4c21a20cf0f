"""What an operator did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Mandate:
    """Who acts, and why."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One act of an operator.

    *action* is noun and verb such as ``job.cancel``; *subject* names one thing, such as ``job 42`` or
    ``queue mail``; *detail* says how it stood before and after; *address* is the network address that it came
    from over HTTP.
    """

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    reason: str | None
    detail: Any
    address: str | None = None
