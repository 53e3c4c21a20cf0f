"""Holds what the application keeps open for as long as its worker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack


class Lifespan:
    """Enters the application's lifespans and leaves them again, the last one first.

    Both happen in one task, whoever starts and stops the worker: some libraries insist on that.
    """

    def __init__(self, spans: Sequence[Callable[[], AbstractAsyncContextManager[None]]]) -> None:
        self._spans = spans
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Enter; raises what the application raises."""
        if not self._spans or self._task is not None:
            return
        self._task = asyncio.create_task(self._live(), name="holdfast lifespan")
        begun = asyncio.create_task(self._begun.wait())
        try:
            await asyncio.wait({self._task, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Leave; raises what the application raises."""
        self._over.set()
        task, self._task = self._task, None
        if task is not None and not (task.done() and not self._begun.is_set()):
            await task

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            for span in self._spans:
                await stack.enter_async_context(span())
            self._begun.set()
            await self._over.wait()
