"""Deliveries over HTTP: listed, made again, and who is told of them."""

from __future__ import annotations

from typing import Annotated

from litestar import Router
from litestar.params import JSONBody, QueryParameter

from holdfast import errors
from holdfast.client.delivery_operator import Wish
from holdfast.client.wire.deliveries import (
    Carried,
    DeliveryPage,
    EndpointAdded,
    EndpointOrder,
    EndpointRemoval,
    EndpointRemoved,
)
from holdfast.client.wire.shape import Because
from holdfast.model.delivery import DeliveryState, Endpoint
from holdfast.model.token import Right
from holdfast.web.api.routes import Before, Id, Limit, act, look, next_page, reason_of
from holdfast.web.given import GivenOperator


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
    return DeliveryPage(found, next_page(found, limit))


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


@look("/endpoints", right=Right.ADMINISTER)
async def list_endpoints(operator: GivenOperator) -> list[Endpoint]:
    """List who is told of what; an address may hold a secret, so only admins see it."""
    return list(await operator.deliveries.endpoints())


@act("/endpoints", Right.ADMINISTER, status=201, raises=(errors.EndpointTaken,))
async def add_endpoint(data: JSONBody[EndpointOrder], operator: GivenOperator) -> EndpointAdded:
    """Have an address told of what ends from now on; the secret that signs is shown this once."""
    wish = Wish(events=data.events, queues=data.queues, kinds=data.kinds)
    secret = await operator.deliveries.add(data.name, data.url, wish, reason=data.reason)
    return EndpointAdded(data.name, secret)


@act("/endpoints/remove", Right.ADMINISTER, raises=(errors.EndpointNotFound,))
async def remove_endpoint(data: JSONBody[EndpointRemoval], operator: GivenOperator) -> EndpointRemoved:
    """Tell an endpoint nothing more, and forget its deliveries."""
    await operator.deliveries.remove(data.name, data.reason)
    return EndpointRemoved(data.name)


router = Router(
    "/deliveries",
    route_handlers=[list_deliveries, redeliver, list_endpoints, add_endpoint, remove_endpoint],
    tags=["deliveries"],
)
