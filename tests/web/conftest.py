"""The service over real HTTP: on a free port of this machine, before a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.client.intake import Intake
from holdfast.client.operator import Operator
from holdfast.model.token import Role, TokenRecord
from holdfast.runtime.events import Events
from holdfast.runtime.metrics import Metrics
from holdfast.store.listen import Notifications
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.web.config import WebConfig
from holdfast.web.server import WebServer


@dataclass
class Service:
    """A service that runs, and what a test asks it with."""

    server: WebServer
    db: ThrowawayDatabase
    probe: Probe
    stack: AsyncExitStack

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.address

    async def token(self, role: Role, name: str | None = None) -> tuple[str, TokenRecord]:
        """Make a token; answers its text and its record."""
        made = await Operator(self.db.database, "test").tokens.create(name or f"a {role.value}", role)
        return made.text, made.record

    async def caller(self, role: Role | None = None, text: str | None = None) -> httpx.AsyncClient:
        """Return a client with a fresh token of *role*, with token *text*, or with none."""
        if role is not None:
            text, _ = await self.token(role)
        headers = {} if text is None else {"Authorization": f"Bearer {text}"}
        client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        return await self.stack.enter_async_context(client)


Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
async def serve(db: ThrowawayDatabase, probe: Probe) -> AsyncIterator[Serve]:
    """Starts the service inside the test's loop: ``await serve(app=app, rate=5)``."""
    async with AsyncExitStack() as stack:

        async def start(app: holdfast.App | None = None, **options: Any) -> Service:
            metrics = Metrics(() if app is None else app.handlers)
            events = Events(probe, metrics)
            notifications = Notifications(db.database, events)
            server = WebServer(
                WebConfig(port=0, **options),
                db.database,
                events,
                intake=Intake(app, {}),
                metrics=metrics,
                lives=lambda: True,
                ready=lambda: True,
            )
            server.listen_to(notifications)
            listens = asyncio.Event()
            notifications.subscribe(lambda topic, _: listens.set() if topic == "reconnected" else None)
            await notifications.start()
            stack.push_async_callback(notifications.stop)
            # Once it hears notifications it answers whoever waits, for it may have missed some.
            async with asyncio.timeout(20):
                await listens.wait()
            await server.start()
            stack.push_async_callback(server.stop)
            return Service(server, db, probe, stack)

        yield start


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A service with the usual settings."""
    return await serve()
