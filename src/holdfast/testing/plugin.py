"""The pytest plugin: a server for the session, a throw-away database for each test.

It is found by itself where holdfast is installed.  Imports are inside the fixtures, so that test runs
which use none of them pay nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing import SyncThrowawayDatabase, ThrowawayDatabase

OPTION = "--holdfast-database-url"
HELP = "PostgreSQL server for the holdfast fixtures (default: an embedded one, from holdfast[embedded])"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini setting that choose the server."""
    parser.getgroup("holdfast").addoption(OPTION, default=None, help=HELP)
    parser.addini("holdfast_database_url", HELP, default=None)


@pytest.fixture(scope="session")
def holdfast_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of a PostgreSQL server: the one that was named, else an embedded one for the session."""
    named: Any = pytestconfig.getoption(OPTION) or pytestconfig.getini("holdfast_database_url")
    if named:
        yield str(named)
        return
    from holdfast.runtime.embedded import EmbeddedServer

    # Not under pytest's own folder: the path of a unix socket may have 107 characters.
    folder = tempfile.TemporaryDirectory(prefix="holdfast", ignore_cleanup_errors=True)
    with folder as name, EmbeddedServer(Path(name) / "data") as server:
        yield server.dsn


try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    # Asking for holdfast_db then fails with pytest's own list of fixtures, which has holdfast_sync_db.
    pass
else:

    @async_fixture
    async def holdfast_db(holdfast_server: str) -> AsyncIterator[ThrowawayDatabase]:
        """A migrated schema of the test's own, dropped after it; needs pytest-asyncio."""
        from holdfast.testing import ThrowawayDatabase

        async with ThrowawayDatabase(holdfast_server) as db:
            yield db


@pytest.fixture
def holdfast_sync_db(holdfast_server: str) -> Iterator[SyncThrowawayDatabase]:
    """A migrated schema of the test's own for tests without asyncio, dropped after it."""
    from holdfast.testing import SyncThrowawayDatabase

    with SyncThrowawayDatabase(holdfast_server) as db:
        yield db
