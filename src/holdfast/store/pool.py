"""Lends connections: a list of those that nobody uses, and a line of those who wait for one.

asyncpg has a pool, but every loan of it makes a proxy, a future and a task, which is more work than a small
statement.  This one lends the connection itself: whoever has given it back must not use it any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg

from holdfast.errors import DatabaseUnavailable, SettingInvalid

Connection: TypeAlias = "asyncpg.Connection[Any]"

# Seconds: so long a connection may be unused, and so long may closing take.
LONGEST_IDLE = 300.0
LONGEST_CLOSE = 5.0


class Pool:
    """At most *size* connections, made by *connect* when they are needed, each lent to one at a time.

    What was used last is lent first, so that the others can be closed after *longest_idle* seconds; but what
    `has_run` a statement goes before what has not, for a server process makes each plan once: that of a claim
    takes it 2 ms.  Who finds none waits, and who waits longest is served first: with a connection, or a free
    place to open one.  *lost* counts the connections that broke.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], size: int, *, longest_idle: float = LONGEST_IDLE
    ) -> None:
        if size < 1:
            msg = f"pool_size must be at least 1, got {size}"
            raise SettingInvalid(msg)
        self._connect, self._size, self._longest_idle = connect, size, longest_idle
        self._loop = asyncio.get_running_loop()
        # Each with the statements that it has run, and the time since when it is idle: the first for longest.
        # While there is one, nobody waits.
        self._idle: list[tuple[Connection, set[str], float]] = []
        self._lent: dict[Connection, set[str]] = {}
        self._opening = 0
        self.lost = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_back = asyncio.Event()

    def take_idle(self, statement: str = "") -> Connection | None:
        """Lend a connection for *statement* if one is idle: all that it takes most of the time."""
        while self._idle:
            connection, plans, _ = self._idle.pop(self._best(statement))
            if not connection.is_closed():
                self._lent[connection] = plans
                return connection
            self.lost += 1
        return None

    def _best(self, statement: str) -> int:
        for n in range(len(self._idle) - 1, -1, -1):
            if statement in self._idle[n][1]:
                return n
        return -1

    def has_run(self, connection: Connection, statement: str) -> None:
        """Note that a connection that is lent has run a statement of this name."""
        self._lent[connection].add(statement)

    async def take(self) -> Connection:
        """Lend a connection: an idle one, a new one, or the next one that is given back."""
        connection = self.take_idle()
        if connection is not None:
            return connection
        if self._has_place():
            self._opening += 1
        elif (connection := await self._turn()) is not None:
            return connection
        return await self._open()

    def give_back(self, connection: Connection) -> None:
        """Take back a connection; one that is closed or in a transaction is never lent again."""
        plans = self._lent.pop(connection)
        if connection.is_closed() or connection.is_in_transaction():
            self.lost += 1
            connection.terminate()
        elif (waiter := self._next_waiter()) is not None:
            self._lent[connection] = plans
            waiter.set_result(connection)
        else:
            self._idle.append((connection, plans, self._loop.time()))
            if self._timer is None:
                self._timer = self._loop.call_later(self._longest_idle, self._close_unused)
        if self._waiting or self._closed:
            self._share_out()

    async def close(self, longest: float = LONGEST_CLOSE) -> None:
        """Close everything, waiting at most *longest* seconds for what is lent; who waits is turned away."""
        self._closed = True
        self._share_out()
        try:
            async with asyncio.timeout(longest):
                await self._all_back.wait()
                # One that died meanwhile cannot be closed in good order, and needs not be.
                await asyncio.gather(*(idle.close() for idle, *_ in self._idle), return_exceptions=True)
        except TimeoutError:
            pass
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for connection in (*self._lent, *(idle for idle, *_ in self._idle)):
                connection.terminate()
            self._idle.clear()

    async def _open(self) -> Connection:
        """Open a connection in a place that is counted as opening."""
        try:
            if self._closed:
                raise _turned_away()
            connection = await self._connect()
            if self._closed:
                connection.terminate()
                raise _turned_away()
            self._lent[connection] = set()
            return connection
        finally:
            self._opening -= 1
            self._share_out()

    async def _turn(self) -> Connection | None:
        """Wait in line for a connection, or None for a place that is counted as opening."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            connection = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                # Served and cancelled at once: it is somebody else's turn.
                self._pass_on(waiter.result())
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise
        if connection is not None and connection.is_closed():
            # It died on the way here: what is left of it is its place.
            self.lost += 1
            del self._lent[connection]
            self._opening += 1
            return None
        return connection

    def _pass_on(self, connection: Connection | None) -> None:
        if connection is not None:
            self.give_back(connection)
        else:
            self._opening -= 1
            self._share_out()

    def _has_place(self) -> bool:
        return len(self._idle) + len(self._lent) + self._opening < self._size

    def _next_waiter(self) -> asyncio.Future[Connection | None] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    def _share_out(self) -> None:
        """Give free places to those who wait; a closed pool gives all of them one, to be turned away in."""
        while (self._closed or self._has_place()) and (waiter := self._next_waiter()) is not None:
            self._opening += 1
            waiter.set_result(None)
        if self._closed and not self._lent and not self._opening:
            self._all_back.set()

    def _close_unused(self) -> None:
        """Close what was idle for too long, and look again when that may be true of another."""
        self._timer = None
        now = self._loop.time()
        while self._idle and self._idle[0][-1] + self._longest_idle <= now:
            self._idle.pop(0)[0].terminate()
        if self._idle:
            self._timer = self._loop.call_at(self._idle[0][-1] + self._longest_idle, self._close_unused)


def _turned_away() -> DatabaseUnavailable:
    return DatabaseUnavailable("the connections were closed meanwhile: call the client's open() first")
