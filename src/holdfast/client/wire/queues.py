"""What is asked of queues over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.wire.shape import Why

QueueName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class QueueOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is done to a queue; *create* also takes a name that nobody has used yet."""

    name: QueueName
    reason: Why = None
    create: bool = False


class ResumeOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which queue goes on."""

    name: QueueName
    reason: Why = None


class LimitOrder(QueueOrder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many jobs of a queue may run in the whole fleet; null lifts the limit."""

    limit: int | None


class KeyLimitOrder(QueueOrder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many jobs of each concurrency key of a queue may run in the whole fleet."""

    limit: int


class RetentionOrder(QueueOrder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For how many seconds the ended jobs of a queue are kept; null: as long as all others."""

    seconds: float | None
