"""The audit log as it travels over HTTP."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.audit import AuditRecord


class AuditPage(msgspec.Struct, frozen=True):
    """Acts, newest first; *next* is *before* of the next page, null on the last one."""

    acts: list[AuditRecord]
    next: int | None


class Clock(msgspec.Struct, frozen=True):
    """The database's time."""

    now: datetime
