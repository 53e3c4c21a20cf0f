"""An HTTP-aware proxy: carries whole requests, so that a test can lose, repeat and overtake them."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)")
_EMPTY = re.compile(rb"HTTP/1\.1 (204|304) ")
_ASSIGNMENT = re.compile(r"assignments/\d+/\d+/")


@dataclass(frozen=True)
class Message:
    """A request as it came in."""

    method: str
    path: str
    data: bytes

    @property
    def name(self) -> str:
        """What it is, whichever assignment it is about."""
        return _ASSIGNMENT.sub("", self.path.removeprefix("/runner/v1/"))


Forward = Callable[[Message], Awaitable[bytes]]
# Answers what the runner is answered; None: nothing, its connection breaks.
Carry = Callable[[Message, Forward], Awaitable[bytes | None]]


async def faithfully(message: Message, forward: Forward) -> bytes | None:
    """Carry a request over and its answer back."""
    return await forward(message)


class Ferry:
    """Listens on a port of its own and carries requests to *target*, each as *carry* does it."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.carry: Carry = faithfully
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        await self.interrupt()

    @property
    def address(self) -> str:
        """Where the runner believes its server is."""
        return f"http://127.0.0.1:{self.port}"

    async def interrupt(self) -> None:
        """Break every connection."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (answer := await self.carry(await _request(reader), self.forward)) is not None:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Whoever was at either end is gone; so is the other one's connection.
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def forward(self, message: Message) -> bytes:
        """Bring a request to the server; answers its whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target, limit=2**26)
        try:
            writer.write(message.data)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length or _EMPTY.match(head), head
            return head + await reader.readexactly(int(length[1]) if length else 0)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _request(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    length = _LENGTH.search(head)
    body = await reader.readexactly(int(length[1])) if length else b""
    return Message(method, path, head + body)
