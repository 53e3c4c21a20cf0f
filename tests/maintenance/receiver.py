"""Endpoints that deliveries are made to, as real servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field


@dataclass
class Receiver:
    """A real HTTP server that keeps what it is sent; it answers with *statuses* in turn, then 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request; whoever sends it may die on the way."""
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self.statuses.pop(0) if self.statuses else 200
        body = b"no thanks" if status >= 300 else b""
        writer.write(
            f"HTTP/1.1 {status} x\r\nLocation: {self.url}/elsewhere\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()


@asynccontextmanager
async def deafness() -> AsyncIterator[str]:
    """The address of an endpoint that takes connections and never answers."""
    never = asyncio.Event()

    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as deaf:
        yield f"http://127.0.0.1:{deaf.sockets[0].getsockname()[1]}/"
        never.set()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Serve on a free port of this machine."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?a=1"
    async with server:
        yield receiver
