"""Serves the service on a port, inside a loop that others share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from holdfast.client.feed import Feed
from holdfast.client.intake import Intake
from holdfast.client.watch import Watch
from holdfast.errors import SettingInvalid
from holdfast.runners.desk import Desk
from holdfast.runners.logs import LogIntake
from holdfast.runtime.events import Events
from holdfast.runtime.exposition import Check, http_address, listening
from holdfast.runtime.metrics import Metrics
from holdfast.store.database import Database
from holdfast.store.listen import Notifications
from holdfast.store.log_chunks import LogLimits
from holdfast.web.application import application
from holdfast.web.backing import Backing
from holdfast.web.config import WebConfig
from holdfast.web.express import Express
from holdfast.web.gate import Gate
from holdfast.web.heads import protocol

_AS_NUMBERS = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
BACKLOG = 2048
# How long requests under way may go on when the service stops, in seconds.
LAST_GRACE = 5


class WebServer:
    """The HTTP service on *database*: it starts once the database is open and stops before it closes."""

    def __init__(
        self,
        config: WebConfig,
        database: Database,
        events: Events,
        *,
        intake: Intake,
        metrics: Metrics,
        lives: Check,
        ready: Check,
    ) -> None:
        self.config, self._events = config, events
        self.gate = Gate(database, config)
        self.watch = Watch(database, events)
        self._desk = Desk(database, events, config.intervals)
        self._feed = Feed(database, events)
        backing = Backing(
            database=database,
            events=events,
            config=config,
            intake=intake,
            metrics=metrics,
            watch=self.watch,
            feed=self._feed,
            logs=LogIntake(database, LogLimits(job=config.log_limit)),
            desk=self._desk,
            lives=lives,
            ready=ready,
        )
        self.application = application(backing, self.gate)
        self.express = Express(self.application, self.gate, events, config.body_limit)
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""

    @property
    def listeners(self) -> int:
        """How many read event streams just now."""
        return self._feed.listeners

    def listen_to(self, notifications: Notifications) -> None:
        """Hear of what other processes do."""
        notifications.subscribe(self.gate.notified)
        notifications.subscribe(self._desk.notified)
        notifications.subscribe(self._feed.notified)

    async def start(self) -> None:
        """Begin to serve; raises `SettingInvalid` where the port is taken or the place is not safe."""
        if not self.config.is_local and not await self.gate.has_tokens():
            msg = (
                f"http_host is {self.config.host!r}, which others can reach, and there is no token yet: "
                "make one with `holdfast tokens create`, or serve on 127.0.0.1"
            )
            raise SettingInvalid(msg, setting="http_host")
        listener = self._bound()
        host, port = socket.getnameinfo(listener.getsockname(), _AS_NUMBERS)
        self.address = http_address(host, int(port))
        await self.watch.start()
        await self._desk.start()
        await self._feed.start()
        self._server = _Server(self._options())
        self._task = asyncio.create_task(self._server.serve([listener]), name="holdfast web")
        await self._server.ready.wait()
        self._events.emit("web.served", address=self.address)

    async def stop(self) -> None:
        """Take no more requests and end those under way; safe to call twice."""
        server, task = self._server, self._task
        self._server = self._task = None
        if server is not None and task is not None:
            self.watch.release()
            self._desk.release()
            self._feed.release()
            server.should_exit = True
            await task
        await self._feed.stop()
        await self._desk.stop()
        await self.watch.stop()

    def _bound(self) -> socket.socket:
        host, port = self.config.host, self.config.port
        family, place = listening(host, port)
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Its connections inherit it: the kernel drops a reader that takes nothing for so long.
            patience = round(1000 * self.config.reader_patience)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        try:
            listener.bind(place)
        except OSError as error:
            listener.close()
            why = f"{error.strerror or error}: choose another port with --port, or 0 for any that is free"
            msg = f"the service cannot listen on {host} port {port}: {why}"
            raise SettingInvalid(msg, setting="http_port") from error
        listener.listen(BACKLOG)
        listener.setblocking(False)
        return listener

    def _options(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.express,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            http=protocol(self.config.head_patience, self.config.body_patience),
            ws="none",
            proxy_headers=bool(self.config.proxies),
            forwarded_allow_ips=list(self.config.proxies),
            timeout_graceful_shutdown=LAST_GRACE,
        )


class _Server(uvicorn.Server):
    """A server that leaves the signals to the process that it is a part of."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self.ready.set()
