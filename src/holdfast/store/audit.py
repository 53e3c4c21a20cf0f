"""Statements about the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model.audit import AuditRecord, Mandate
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, count, first_value

_SQL = blocks("audit")


def list_audit(
    *, subject: str | None = None, actor: str | None = None, before: int | None = None, limit: int = 50
) -> Statement[list[AuditRecord]]:
    """Find what operators did, newest first."""
    return Statement("list_audit", _SQL["list_audit"], (subject, actor, before, limit), _records)


def _records(rows: Sequence[Row]) -> list[AuditRecord]:
    return [_record(list(row)) for row in rows]


def _record(values: list[Any]) -> AuditRecord:
    values[6] = msgspec.json.decode(values[6])
    return AuditRecord(*values)


def write_audit(mandate: Mandate, action: str, subject: str, detail: dict[str, Any]) -> Statement[int]:
    """Note an act that another statement of the same transaction did."""
    text = msgspec.json.encode(detail).decode()
    parameters = (mandate.actor, action, subject, mandate.reason, text)
    return Statement("write_audit", _SQL["write_audit"], parameters, first_value)


def note_address(address: str) -> Statement[str]:
    """Let the acts of this transaction be audited with the network *address* that they came from."""
    return Statement("note_address", _SQL["note_address"], (address,), first_value)


def prune_enqueues(term: int, seconds: float, limit: int) -> Statement[int]:
    """Forget who enqueued what more than *seconds* ago; answers how many notes."""
    return Statement("prune_enqueues", _SQL["prune_enqueues"], (term, seconds, limit), count)
