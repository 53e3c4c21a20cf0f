"""Queues over HTTP.  Their names stand in bodies: they may hold whatever an address may not."""

from __future__ import annotations

from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.client.wire.queues import KeyLimitOrder, LimitOrder, QueueOrder, ResumeOrder, RetentionOrder
from holdfast.model.token import Right
from holdfast.model.worker import QueueRecord
from holdfast.web.api.routes import act, look
from holdfast.web.given import GivenOperator

UNKNOWN = (errors.QueueNotFound,)


@look("/")
async def list_queues(operator: GivenOperator) -> list[QueueRecord]:
    """List queues with their limits, and their counts as of their *counted_at*."""
    return list(await operator.queues.find())


@act("/pause", Right.OPERATE, raises=UNKNOWN)
async def pause_queue(data: JSONBody[QueueOrder], operator: GivenOperator) -> QueueRecord:
    """Let nobody claim from a queue; what runs goes on."""
    return await operator.queues.pause(data.name, data.reason, create=data.create)


@act("/resume", Right.OPERATE, raises=UNKNOWN)
async def resume_queue(data: JSONBody[ResumeOrder], operator: GivenOperator) -> QueueRecord:
    """Let workers claim from a queue again."""
    return await operator.queues.resume(data.name, data.reason)


@act("/limit", Right.OPERATE, raises=UNKNOWN)
async def limit_queue(data: JSONBody[LimitOrder], operator: GivenOperator) -> QueueRecord:
    """Limit how many jobs of a queue run at once in the whole fleet."""
    return await operator.queues.limit(data.name, data.limit, data.reason, create=data.create)


@act("/key-limit", Right.OPERATE, raises=UNKNOWN)
async def limit_keys(data: JSONBody[KeyLimitOrder], operator: GivenOperator) -> QueueRecord:
    """Limit how many jobs of each concurrency key of a queue run at once in the whole fleet."""
    return await operator.queues.key_limit(data.name, data.limit, data.reason, create=data.create)


@act("/retention", Right.OPERATE, raises=UNKNOWN)
async def keep_for(data: JSONBody[RetentionOrder], operator: GivenOperator) -> QueueRecord:
    """Keep the ended jobs of a queue for a shorter time than all others."""
    return await operator.queues.retention(data.name, data.seconds, data.reason, create=data.create)


router = Router(
    "/queues",
    route_handlers=[list_queues, pause_queue, resume_queue, limit_queue, limit_keys, keep_for],
    tags=["queues"],
)
