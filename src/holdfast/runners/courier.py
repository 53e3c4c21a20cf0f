"""Carries deliveries: the handler of the jobs that a delivery makes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass, field

import httpx

from holdfast.app.registry import App
from holdfast.errors import DeliveryFailed
from holdfast.model.delivery import KIND, QUEUE
from holdfast.rules.destination import Destination, destination, is_public
from holdfast.rules.signature import signature
from holdfast.store import deliveries
from holdfast.store.database import Database
from holdfast.store.deliveries import OpenDelivery

PATIENCE = 15.0
# Of an answer that refuses so much is kept.
MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Courier:
    """Posts deliveries; *private* allows those to this machine and to private networks."""

    database: Database
    private: bool = False
    # Reading the certificates takes the loop 20 ms. Connections are not shared: a pool knows addresses only.
    _tls: ssl.SSLContext = field(
        default_factory=lambda: httpx.create_ssl_context(trust_env=False), init=False, repr=False
    )

    def app(self) -> App:
        """Return the application with the kind that carries deliveries."""
        app = App()

        @app.job(kind=KIND, queue=QUEUE)
        async def deliver(delivery: int) -> str:
            return await self.deliver(delivery)

        return app

    async def deliver(self, delivery_id: int) -> str:
        """Make one try; answers what it came to, raises `DeliveryFailed` where another try is needed."""
        found = await self.database.run(deliveries.open_delivery(delivery_id))
        if found is None:
            return "nobody wants it any more"
        if found.delivered:
            # The answer was noted, the end of this job was not: it is delivered, and stays so.
            return "delivered before"
        status, problem = await self._post(found)
        await self.database.run(deliveries.note_delivery(found.id, status, problem))
        if problem is not None:
            raise DeliveryFailed(found.id, found.endpoint, problem)
        return f"{found.endpoint} answered {status}"

    async def _post(self, found: OpenDelivery) -> tuple[int | None, str | None]:
        """Return the status of the answer, and what is wrong with it."""
        place = destination(found.url)
        address = await self._address(place)
        if address is None:
            # Which of both it is tells nobody what there is in our network.
            inside = "" if self.private else ", or is no public address: those take deliveries_private"
            return None, f"{place.host} is not found{inside}"
        try:
            async with asyncio.timeout(PATIENCE), self._client() as client:
                return await _answer(client, _request(client, found, place, address))
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            return None, f"{type(error).__name__}: {error}"[:MOST_SHOWN]

    async def _address(self, place: Destination) -> str | None:
        """Return an address of the host that may be used; it is what is then connected to.

        So a name that leads elsewhere a moment later leads nowhere.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except OSError:
            return None
        addresses = [str(one[4][0]) for one in found]
        # One private address among public ones is an attack or a mistake; neither is to be tried.
        if not self.private and not all(is_public(one) for one in addresses):
            return None
        return addresses[0] if addresses else None

    def _client(self) -> httpx.AsyncClient:
        # No proxy of the environment could reach what we must not, and no redirect leads there.
        return httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=PATIENCE)


def _request(
    client: httpx.AsyncClient, found: OpenDelivery, place: Destination, address: str
) -> httpx.Request:
    body = found.body.encode()
    host = f"[{address}]" if ":" in address else address
    named = f"[{place.host}]" if ":" in place.host else place.host
    headers = {
        "Host": f"{named}:{place.port}",
        "Content-Type": "application/json",
        "User-Agent": "holdfast",
        "Holdfast-Delivery": str(found.id),
        "Holdfast-Event": found.event,
        "Holdfast-Signature": signature(found.secret, body, int(time.time())),
    }
    url = f"{place.scheme}://{host}:{place.port}{place.target}"
    # The certificate has to be that of the name, whatever address it leads to.
    extensions = {"sni_hostname": place.host}
    return client.build_request("POST", url, content=body, headers=headers, extensions=extensions)


async def _answer(client: httpx.AsyncClient, request: httpx.Request) -> tuple[int, str | None]:
    answer = await client.send(request, stream=True)
    try:
        if answer.is_success:
            return answer.status_code, None
        shown = b""
        async for piece in answer.aiter_raw():
            shown += piece
            if len(shown) >= MOST_SHOWN:
                break
        text = shown[:MOST_SHOWN].decode("utf-8", "replace").replace("\0", "")
        return answer.status_code, f"answered {answer.status_code}: {text}".strip(": ")
    finally:
        await answer.aclose()
