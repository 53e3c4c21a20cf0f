"""Real PostgreSQL for every test: one server a session, one schema a test."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.maintenance import rescuer
from holdfast.runtime.embedded import EmbeddedServer
from holdfast.runtime.events import Events
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.config import WorkerConfig
from tests.runners.agent.strait import Wire, socket_in
from tests.store.scene import Scene


def pytest_configure() -> None:
    """Let programs that tests start hear signals to which jobs of a background or of nohup are deaf."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _server(version: int) -> Iterator[EmbeddedServer]:
    # Not under pytest's own folder: the path of a unix socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "data", version=version)
        server.start()
        try:
            yield server
        finally:
            server.stop()


REFUSING = """
create function holdfast.refuse() returns trigger language plpgsql as $$
begin
    if CONDITION then
        raise exception 'not this one' using errcode = 'MY001';
    end if;
    return new;
end $$
"""
REFUSES = (
    "create trigger refuse before insert on holdfast.jobs for each row execute function holdfast.refuse()"
)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The newest PostgreSQL of the wheel."""
    yield from _server(18)


@pytest.fixture(scope="session")
def server16() -> Iterator[EmbeddedServer]:
    """The oldest PostgreSQL of the wheel."""
    yield from _server(16)


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> str:
    """The address of the session's server; of PostgreSQL 16 in a test marked pg16."""
    name = "server16" if request.node.get_closest_marker("pg16") else "server"
    server: EmbeddedServer = request.getfixturevalue(name)
    return server.dsn


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[ThrowawayDatabase]:
    """A migrated schema of the test's own."""
    async with ThrowawayDatabase(dsn) as database:
        yield database


@pytest.fixture
async def client(db: ThrowawayDatabase) -> AsyncIterator[holdfast.Client]:
    """A client of the test's schema."""
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        yield client


@pytest.fixture
async def scene(db: ThrowawayDatabase) -> AsyncIterator[Scene]:
    """The store at hand without a worker process around it."""
    async with AsyncExitStack() as stack:
        yield Scene(db, stack)


@pytest.fixture
async def wire(db: ThrowawayDatabase) -> AsyncIterator[tuple[Wire, str]]:
    """A network to the server, and the server's address on its other side."""
    home = parse_qs(urlsplit(db.dsn).query)["host"][0]
    socket = socket_in(Path(home))
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        async with Wire(socket, Path(folder)) as between:
            yield between, db.dsn.replace(quote(home), quote(folder))


@pytest.fixture
def probe() -> Probe:
    """Hears every event of the workers that `work` starts."""
    return Probe()


StartWorker = Callable[..., Any]


@pytest.fixture
async def work(db: ThrowawayDatabase, probe: Probe) -> AsyncIterator[StartWorker]:
    """Starts worker processes inside the test's loop: ``await work(app, slots=2, ttl=1.0)``.

    They work on the app's queues, or on ``queues``; all are stopped at the end, with no grace.
    """
    async with AsyncExitStack() as stack:

        async def start(app: holdfast.App, **options: Any) -> WorkerProcess:
            queues = options.pop("queues", None) or app.queues() or ("default",)
            database = replace(db.config, **options.pop("database", {}))
            config = WorkerConfig(database=database, queues=tuple(queues), **options)
            process = WorkerProcess(app, config, Events(probe))
            await process.start()
            stack.push_async_callback(process.stop, 0.0)
            return process

        yield start


@pytest.fixture
def refuse(db: ThrowawayDatabase) -> Callable[[str], Any]:
    """Has somebody's trigger refuse jobs under a code of its own: ``await refuse("new.kind = 'it'")``."""

    async def make(condition: str) -> None:
        await db.fetch(REFUSING.replace("CONDITION", condition))
        await db.fetch(REFUSES)

    return make


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until a question about the database is answered with true: ``await eventually(lambda: …)``."""

    async def wait(question: Callable[[], Any], *, timeout: float = 20.0) -> Any:
        async with asyncio.timeout(timeout):
            while not (answer := await question()):  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(0.02)
        return answer

    return wait


@pytest.fixture
def lose(db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Declares every worker lost; the leader takes what they hold: ``await lose()``."""
    # For workers that it did not declare lost itself a leader looks every ten seconds.
    monkeypatch.setattr(rescuer, "LEFT_EVERY", 1)
    monkeypatch.setattr(rescuer, "REST", 0.2)
    declare = "update holdfast.workers set state = 'lost', ended_at = holdfast.now()"
    return lambda: db.fetch(declare)
