"""The network to a runner's server, or to PostgreSQL: it can be cut, slowed and interrupted."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self


class Strait:
    """Passes connections on from a port that stays to one that may change.

    *delay* holds every piece back, in seconds; while it is *cut* nothing passes, in either direction, and
    nobody is told.
    """

    def __init__(self, port: int) -> None:
        self.target, self.port = port, 0
        self.delay = 0.0
        self.passed = asyncio.Event()
        self.passed.set()
        self._server: asyncio.Server | None = None
        self._lines: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.interrupt()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """Where the runner believes its server is."""
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Let nothing through."""
        self.passed.clear()

    def mend(self) -> None:
        """Let everything through again; what was under way is lost."""
        self.interrupt()
        self.passed.set()

    def interrupt(self) -> None:
        """Break every connection, whatever is under way on it."""
        for line in self._lines:
            line.transport.abort()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.target)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Kept until the end: one that is closed may wait for ever to be rid of what it still has to say.
        self._lines.append(writer)
        try:
            await self.passed.wait()
            further, back = await self._reach()
            self._lines.append(back)
            await asyncio.gather(self._pump(reader, back), self._pump(further, writer))
        finally:
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self.passed.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()


class Wire(Strait):
    """A network between whoever uses it and PostgreSQL that a test can cut for all of them."""

    def __init__(self, socket: Path, folder: Path) -> None:
        super().__init__(0)
        self._socket, self._folder = socket, folder

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._pass, self._folder / self._socket.name)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._socket)


def socket_in(home: Path) -> Path:
    """Where the server is spoken to."""
    (socket,) = (path for path in home.glob(".s.PGSQL.*") if path.suffix != ".lock")
    return socket
