"""Deliveries over HTTP: listed, and made again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Router
from litestar.params import JSONBody, QueryParameter

from holdfast import errors
from holdfast.client.wire.shape import Because
from holdfast.model.delivery import DeliveryRecord, DeliveryState
from holdfast.model.token import Right
from holdfast.web.api.routes import Before, Id, Limit, act, look, reason_of
from holdfast.web.given import GivenOperator


class DeliveryPage(msgspec.Struct, frozen=True):
    """Deliveries, newest first; *next* is *before* of the next page, null on the last one."""

    deliveries: list[DeliveryRecord]
    next: int | None


class Carried(msgspec.Struct, frozen=True):
    """The job that carries a delivery."""

    job_id: int


@look("/")
async def list_deliveries(
    operator: GivenOperator,
    endpoint: Annotated[str | None, QueryParameter(max_length=200)] = None,
    stand: Annotated[DeliveryState | None, QueryParameter(name="state")] = None,
    limit: Limit = 50,
    before: Before = None,
) -> DeliveryPage:
    """List deliveries, newest first."""
    find = operator.deliveries.find
    found = list(await find(endpoint=endpoint, state=stand, before=before, limit=limit))
    return DeliveryPage(found, found[-1].id if len(found) == limit else None)


@act(
    "/{delivery_id:int}/redeliver",
    Right.OPERATE,
    raises=(errors.DeliveryNotFound, errors.StateConflict),
)
async def redeliver(
    delivery_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None
) -> Carried:
    """Have a delivery made again, be it dead or delivered."""
    return Carried(await operator.deliveries.redeliver(delivery_id, reason_of(data)))


router = Router("/deliveries", route_handlers=[list_deliveries, redeliver], tags=["deliveries"])
