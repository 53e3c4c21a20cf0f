"""Deliveries and their endpoints by way of the service."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.client.delivery_operator import Wish
from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.wire.deliveries import (
    Carried,
    DeliveryPage,
    EndpointAdded,
    EndpointOrder,
    EndpointRemoval,
    EndpointRemoved,
)
from holdfast.client.wire.shape import Because
from holdfast.model.delivery import DeliveryRecord, DeliveryState, Endpoint


class RemoteDeliveries:
    """The verbs of `DeliveryOperator`, asked of the service; only admins say where events go."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def add(self, name: str, url: str, wish: Wish | None = None, *, reason: str | None = None) -> str:
        """Have *url* told of what ends from now on; answers the secret that signs."""
        wish = wish or Wish()
        order = EndpointOrder(
            name=name,
            url=url,
            events=tuple(wish.events),
            queues=tuple(wish.queues),
            kinds=tuple(wish.kinds),
            reason=reason,
        )
        return (await self._connection.post("/deliveries/endpoints", EndpointAdded, order)).secret

    async def remove(self, name: str, reason: str | None = None) -> None:
        """Tell an endpoint nothing more."""
        removal = EndpointRemoval(name=name, reason=reason)
        await self._connection.post("/deliveries/endpoints/remove", EndpointRemoved, removal)

    async def endpoints(self) -> Sequence[Endpoint]:
        """Return the endpoints, without their secrets."""
        return await self._connection.get("/deliveries/endpoints", list[Endpoint])

    async def find(
        self,
        *,
        endpoint: str | None = None,
        state: DeliveryState | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[DeliveryRecord]:
        """Return deliveries with ids below *before*, newest first."""
        page = await self._connection.get(
            "/deliveries", DeliveryPage, endpoint=endpoint, state=state, before=before, limit=limit
        )
        return page.deliveries

    async def redeliver(self, delivery_id: int, reason: str | None = None) -> int:
        """Have a delivery made again; answers the job that carries it."""
        path = f"/deliveries/{delivery_id}/redeliver"
        return (await self._connection.post(path, Carried, Because(reason))).job_id
