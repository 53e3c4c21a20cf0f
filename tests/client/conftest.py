"""An operator, a clock, and the client in both its forms."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.testing import Clock, ThrowawayDatabase


@pytest.fixture
def operator(db: ThrowawayDatabase) -> Operator:
    """Acts on the test's schema as alice."""
    return Operator(db.database, "alice")


@pytest.fixture
def clock(db: ThrowawayDatabase) -> Clock:
    """The clock of the test's schema."""
    return Clock(db)


@pytest.fixture(params=["async", "sync"])
async def call(request: pytest.FixtureRequest, db: ThrowawayDatabase) -> Any:
    """Calls a verb of the async or of the sync client by name."""
    if request.param == "async":
        async with holdfast.Client(db.dsn, schema=db.schema) as client:
            yield lambda verb, *args, **options: getattr(client, verb)(*args, **options)
        return
    with holdfast.SyncClient(db.dsn, schema=db.schema) as sync_client:
        yield lambda verb, *args, **options: asyncio.to_thread(getattr(sync_client, verb), *args, **options)
