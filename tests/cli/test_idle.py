"""An idle worker leaves its machine and its database alone."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.runtime.embedded import EmbeddedServer
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import free_port

SETTLE, WATCH = 15.0, 60.0


@pytest.fixture
async def db() -> AsyncIterator[ThrowawayDatabase]:
    """A schema on a server of its own, so that nobody else's statements are counted."""
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "data")
        server.start()
        try:
            async with ThrowawayDatabase(server.dsn) as database:
                yield database
        finally:
            server.stop()


async def transactions(db: ThrowawayDatabase) -> int:
    """Everything that the server has committed or rolled back so far; a statement is at least one."""
    found = await db.value(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    )
    return int(found)


@pytest.mark.soak
async def test_an_idle_worker_that_leads_costs_next_to_nothing(
    start_holdfast: Any, here: dict[str, str], db: ThrowawayDatabase
) -> None:
    """At most 2 statements a second, 60 MB of memory and 1 % of a core, with metrics served."""
    program = await start_holdfast("worker", "--app", "shop:app", "--metrics-port", str(free_port()), **here)
    await program.probe.wait_for("leader.changed")
    process = psutil.Process(program.process.pid)
    # What is looked up once, at the start, is no matter of idling.
    await asyncio.sleep(SETTLE)
    statements, seconds = await transactions(db), sum(process.cpu_times()[:2])
    await asyncio.sleep(WATCH)
    statements = await transactions(db) - statements
    seconds = sum(process.cpu_times()[:2]) - seconds
    assert statements / WATCH <= 2.0
    assert seconds / WATCH < 0.01
    assert process.memory_info().rss < 60_000_000
