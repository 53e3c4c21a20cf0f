"""LISTEN on a connection of its own, with reconnect and keepalive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store.database import DRIVER_ERRORS, Connection, Database, own_errors

# How often a connection is asked whether it still answers, and how long it may take, in seconds.
KEEPALIVE = 15.0
PATIENCE = 5.0

Listener = Callable[[str, str], None]


class Notifications(Service):
    """Hears what the schema's channel says and passes it on as topic and rest.

    A payload is ``topic`` or ``topic:rest``.  After every reconnect the topic ``reconnected`` is passed
    on, for anything may have been missed.  A connection that does not answer within 5 s is dropped.
    """

    name = "notifications"

    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(events)
        self._database = database
        self._listeners: list[Listener] = []
        self._connection: Connection | None = None

    def subscribe(self, listener: Listener) -> None:
        """Call *listener* with topic and rest of every notification."""
        self._listeners.append(listener)

    async def turn(self) -> float:
        """Connect where needed, else check that the connection still answers."""
        try:
            if self._connection is None or self._connection.is_closed():
                await self._connect()
            else:
                with own_errors(self._database.schema):
                    async with asyncio.timeout(PATIENCE):
                        await self._connection.execute("select 1")
        except BaseException:
            await self._disconnect()
            raise
        return KEEPALIVE

    async def stop(self) -> None:
        """Stop listening."""
        await super().stop()
        await self._disconnect()

    async def _connect(self) -> None:
        connection = await self._database.connect()
        # Known before it listens, so that a stop in between closes it.
        self._connection = connection
        connection.add_termination_listener(self._terminated)
        with own_errors(self._database.schema):
            await connection.add_listener(self._database.schema, self._heard)
        self.events.emit("listen.connected")
        self._tell("reconnected", "")

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.remove_termination_listener(self._terminated)
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=1)

    def _terminated(self, _connection: object) -> None:
        self.events.emit("listen.lost")
        self.wake()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        topic, _, rest = str(payload).partition(":")
        self._tell(topic, rest)

    def _tell(self, topic: str, rest: str) -> None:
        for listener in self._listeners:
            listener(topic, rest)
