"""Engines on a throw-away database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast.engine import EngineConfig, EngineStore
from holdfast.runtime.events import Events
from holdfast.testing import Probe, ThrowawayDatabase

KIND = "plan"
OpenStore = Callable[..., Awaitable[EngineStore]]


@pytest.fixture
async def opened(db: ThrowawayDatabase, probe: Probe) -> AsyncIterator[OpenStore]:
    """Opens an engine's store, which is closed at the end: ``await opened(ttl=1.0)``."""
    async with AsyncExitStack() as stack:

        async def open_store(**options: Any) -> EngineStore:
            config = EngineConfig(**({"kinds": (KIND,)} | options))
            store = EngineStore(db.dsn, config, schema=db.schema, pool_size=2, events=Events(probe))
            return await stack.enter_async_context(store)

        yield open_store
