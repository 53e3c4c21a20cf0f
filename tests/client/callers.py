"""Applications with a transaction of their own: one small face over every library they may use."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import holdfast
from holdfast.testing import ThrowawayDatabase


class Caller:
    """A caller in the middle of a transaction.

    *connection* is what goes to the client; *commit*, *rollback* and *execute* are the library's own.
    """

    connection: Any
    client: Any

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what belongs to the caller: awaited on the loop, or in the caller's own thread."""
        return await function(*args, **kwargs)

    async def enqueue(self, request: Any, **options: Any) -> holdfast.JobHandle:
        """Enqueue one job in the caller's transaction."""
        handle: holdfast.JobHandle = await self.call(
            self.client.enqueue, request, connection=self.connection, **options
        )
        return handle

    async def enqueue_many(self, requests: Any, **options: Any) -> list[holdfast.JobHandle]:
        """Enqueue many jobs in the caller's transaction."""
        handles: list[holdfast.JobHandle] = await self.call(
            self.client.enqueue_many, requests, connection=self.connection, **options
        )
        return handles

    async def execute(self, text: str) -> None:
        """Run SQL as the caller's own."""
        raise NotImplementedError

    async def commit(self) -> None:
        """Commit; the caller's next statement begins another transaction."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """Roll back; the caller's next statement begins another transaction."""
        raise NotImplementedError


class AsyncpgCaller(Caller):
    """asyncpg, whose transactions are objects."""

    def __init__(self, connection: Any) -> None:
        self.connection, self._transaction = connection, connection.transaction()

    async def begin(self) -> None:
        """Begin a transaction."""
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def execute(self, text: str) -> None:
        """Run SQL as the caller's own."""
        await self.connection.execute(text)

    async def commit(self) -> None:
        """Commit and begin anew."""
        await self._transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        """Roll back and begin anew."""
        await self._transaction.rollback()
        await self.begin()


class DriverCaller(Caller):
    """psycopg and SQLAlchemy, async or (in a thread of its own) sync: they begin by themselves."""

    def __init__(self, connection: Any, *, thread: ThreadPoolExecutor | None = None, text: Any = str) -> None:
        self.connection, self._thread, self._text = connection, thread, text
        self.in_thread = thread is not None

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what belongs to the caller where it belongs."""
        if self._thread is None:
            return await function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    async def execute(self, text: str) -> None:
        """Run SQL as the caller's own."""
        await self.call(self.connection.execute, self._text(text))

    async def commit(self) -> None:
        """Commit."""
        await self.call(self.connection.commit)

    async def rollback(self) -> None:
        """Roll back."""
        await self.call(self.connection.rollback)


class DjangoCaller(DriverCaller):
    """Django inside ``transaction.atomic()``, in a thread of its own."""

    async def execute(self, text: str) -> None:
        """Run SQL as the caller's own."""

        def run() -> None:
            with self.connection.cursor() as cursor:
                cursor.execute(text)

        await self.call(run)

    async def begin(self) -> None:
        """Enter an atomic block."""
        from django.db import transaction

        self._atomic: Any = transaction.atomic()
        await self.call(self._atomic.__enter__)

    async def commit(self) -> None:
        """Leave the atomic block well."""
        await self.call(self._atomic.__exit__, None, None, None)
        await self.begin()

    async def rollback(self) -> None:
        """Leave the atomic block with an error."""
        await self.call(self._atomic.__exit__, ValueError, ValueError(), None)
        await self.begin()


Opened = AbstractAsyncContextManager[Caller]


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Caller]:
    """A connection of asyncpg."""
    connection = await asyncpg.connect(dsn)
    try:
        caller = AsyncpgCaller(connection)
        await caller.begin()
        yield caller
    finally:
        connection.terminate()


@asynccontextmanager
async def asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    """A connection that a pool of asyncpg lends."""
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        connection = await pool.acquire()
        caller = AsyncpgCaller(connection)
        await caller.begin()
        yield caller
        pool.terminate()


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    """A connection of async psycopg."""
    connection = await psycopg.AsyncConnection.connect(dsn)
    try:
        yield DriverCaller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def psycopg_sync(dsn: str) -> AsyncIterator[Caller]:
    """A connection of sync psycopg."""
    with ThreadPoolExecutor(1) as thread, psycopg.connect(dsn) as connection:
        yield DriverCaller(connection, thread=thread)
        connection.rollback()


def _url(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def sqlalchemy_sync(dsn: str, make: Callable[[Any], Any]) -> AsyncIterator[Caller]:
    """What *make* makes of an engine of SQLAlchemy."""
    engine = sqlalchemy.create_engine(_url(dsn, "psycopg"))
    with ThreadPoolExecutor(1) as thread:
        caller = DriverCaller(make(engine), thread=thread, text=sqlalchemy.text)
        yield caller
        await caller.call(caller.connection.close)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_async(dsn: str, driver: str, make: Callable[[Any], Any]) -> AsyncIterator[Caller]:
    """What *make* makes of an async engine of SQLAlchemy."""
    engine = create_async_engine(_url(dsn, driver))
    connection = make(engine)
    if hasattr(connection, "start"):
        await connection.start()
    yield DriverCaller(connection, text=sqlalchemy.text)
    await connection.close()
    await engine.dispose()


def configure_django(dsn: str) -> None:
    """Tell Django, once a process, where the session's server is."""
    if not settings.configured:
        address = psycopg.conninfo.conninfo_to_dict(dsn)
        names = {"NAME": address["dbname"], "HOST": address["host"], "USER": address["user"]}
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **names}})
        django.setup()


@asynccontextmanager
async def django_connection(dsn: str, *, by_alias: bool) -> AsyncIterator[Caller]:
    """Django's connection: ``django.db.connection`` itself, or what it stands for in this thread."""
    configure_django(dsn)
    from django.db import connection, connections

    with ThreadPoolExecutor(1) as thread:
        chosen = connection
        if by_alias:
            chosen = await asyncio.get_running_loop().run_in_executor(thread, lambda: connections["default"])
        caller = DjangoCaller(chosen, thread=thread)
        await caller.begin()
        yield caller
        await caller.call(lambda: connections["default"].close())


CALLERS: dict[str, Callable[[str], Opened]] = {
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "psycopg async": psycopg_async,
    "psycopg": psycopg_sync,
    "sqlalchemy connection": lambda dsn: sqlalchemy_sync(dsn, lambda engine: engine.connect()),
    "sqlalchemy session": lambda dsn: sqlalchemy_sync(dsn, Session),
    "sqlalchemy scoped session": lambda dsn: sqlalchemy_sync(dsn, lambda e: scoped_session(sessionmaker(e))),
    "sqlalchemy asyncpg connection": lambda dsn: sqlalchemy_async(dsn, "asyncpg", lambda e: e.connect()),
    "sqlalchemy asyncpg session": lambda dsn: sqlalchemy_async(dsn, "asyncpg", AsyncSession),
    "sqlalchemy psycopg connection": lambda dsn: sqlalchemy_async(dsn, "psycopg", lambda e: e.connect()),
    "sqlalchemy psycopg session": lambda dsn: sqlalchemy_async(dsn, "psycopg", AsyncSession),
    "sqlalchemy async scoped session": lambda dsn: sqlalchemy_async(
        dsn, "asyncpg", lambda e: async_scoped_session(async_sessionmaker(e), asyncio.current_task)
    ),
    "django": lambda dsn: django_connection(dsn, by_alias=False),
    "django by alias": lambda dsn: django_connection(dsn, by_alias=True),
}


@asynccontextmanager
async def caller(name: str, db: ThrowawayDatabase) -> AsyncIterator[Caller]:
    """Open the caller of that name with the client that fits it."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(CALLERS[name](db.dsn))
        if isinstance(opened, DriverCaller) and opened.in_thread:
            opened.client = stack.enter_context(holdfast.SyncClient(db.dsn, schema=db.schema))
        else:
            opened.client = await stack.enter_async_context(holdfast.Client(db.dsn, schema=db.schema))
        yield opened
