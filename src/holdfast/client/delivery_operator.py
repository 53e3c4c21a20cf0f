"""What an operator sees of deliveries and does to them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.app.options import checked_text
from holdfast.errors import DeliveryNotFound, EndpointNotFound, EndpointTaken, StateConflict
from holdfast.model.audit import Mandate
from holdfast.model.delivery import (
    AT_ONCE,
    ENDS,
    DeliveryEvent,
    DeliveryRecord,
    DeliveryState,
    Endpoint,
    carrier,
)
from holdfast.rules.destination import destination, shown_origin
from holdfast.store import audit, deliveries, jobs
from holdfast.store.database import Connection, Database
from holdfast.store.deliveries import NewEndpoint

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an endpoint wants to be told of: of all queues and kinds where none is named."""

    events: Sequence[DeliveryEvent] = ENDS
    queues: Sequence[str] = ()
    kinds: Sequence[str] = ()


class DeliveryOperator:
    """Adds and removes endpoints; lists deliveries and has them tried again.

    The audit log, which more may read, has of an address no more than its origin.
    """

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def add(self, name: str, url: str, wish: Wish | None = None, *, reason: str | None = None) -> str:
        """Have *url* told of what ends from now on; answers the secret that signs, which is shown this once.

        Raises `OptionInvalid`, `EndpointTaken`.
        """
        wish = wish or Wish()
        checked_text("name", name, most=200)
        for option, names in (("queue", wish.queues), ("kind", wish.kinds)):
            for one in names:
                checked_text(option, one, most=200)
        origin = destination(url).origin
        secret = f"hfs_{secrets.token_urlsafe(SECRET_BYTES)}"
        new = NewEndpoint(
            name=name,
            url=url,
            secret=secret,
            events=[event.value for event in wish.events],
            queues=wish.queues,
            kinds=wish.kinds,
            created_by=self._actor,
        )
        async with self._database.transaction() as connection:
            if await self._database.run(deliveries.add_endpoint(new, AT_ONCE), connection) is None:
                raise EndpointTaken(name)
            after = {"url": origin, "events": new.events, "queues": wish.queues, "kinds": wish.kinds}
            await self._audit(connection, "endpoint.add", f"endpoint {name}", reason, {"after": after})
        return secret

    async def remove(self, name: str, reason: str | None = None) -> None:
        """Tell an endpoint nothing more; raises `EndpointNotFound`."""
        async with self._database.transaction() as connection:
            gone = await self._database.run(deliveries.remove_endpoint(name), connection)
            if gone is None:
                raise EndpointNotFound(name)
            before = {
                "url": shown_origin(gone.url),
                "events": gone.events,
                "queues": gone.queues,
                "kinds": gone.kinds,
            }
            await self._audit(connection, "endpoint.remove", f"endpoint {name}", reason, {"before": before})

    async def endpoints(self) -> Sequence[Endpoint]:
        """Return the endpoints, without their secrets."""
        return await self._database.run(deliveries.list_endpoints())

    async def find(
        self,
        *,
        endpoint: str | None = None,
        state: DeliveryState | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[DeliveryRecord]:
        """Return deliveries with ids below *before*, newest first."""
        statement = deliveries.list_deliveries(endpoint, state, before=before, limit=limit)
        return await self._database.run(statement)

    async def redeliver(self, delivery_id: int, reason: str | None = None) -> int:
        """Have a delivery made again, be it dead or delivered; answers the job that carries it.

        Raises `DeliveryNotFound`, and `StateConflict` where it is under way.
        """
        async with self._database.transaction() as connection:
            found = await self._locked(connection, delivery_id)
            await self._database.run(
                deliveries.note_delivery(delivery_id, None, "asked for again"), connection
            )
            [handle] = await self._database.run(
                jobs.enqueue_jobs([carrier(delivery_id, found.endpoint)]), connection
            )
            await self._database.run(deliveries.carry_deliveries([delivery_id], [handle.id]), connection)
            subject = f"delivery {delivery_id}"
            detail = {"before": {"job": found.carrier_id}, "after": {"job": handle.id}}
            await self._audit(connection, "delivery.redeliver", subject, reason, detail)
        return handle.id

    async def _locked(self, connection: Connection, delivery_id: int) -> DeliveryRecord:
        """Return a delivery that nothing carries, and that nobody else has made again meanwhile."""
        await self._database.run(deliveries.lock_delivery(delivery_id), connection)
        newest = deliveries.list_deliveries(None, None, before=delivery_id + 1, limit=1)
        rows = await self._database.run(newest, connection)
        if not rows or rows[0].id != delivery_id:
            raise DeliveryNotFound(delivery_id)
        [found] = rows
        if found.state is DeliveryState.WAITING and found.carrier_id is not None:
            remedy = f"see `holdfast jobs show {found.carrier_id}`"
            raise StateConflict(found.carrier_id, action="delivered again", state="under way", remedy=remedy)
        return found

    async def _audit(
        self, connection: Connection, action: str, subject: str, reason: str | None, detail: dict[str, object]
    ) -> None:
        note = audit.write_audit(Mandate(self._actor, reason), action, subject, detail)
        await self._database.run(note, connection)
