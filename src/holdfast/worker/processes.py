"""Runs CPU-bound handlers in child processes that can be killed."""

from __future__ import annotations

from typing import Any

from holdfast.app.handler import Handler
from holdfast.worker.running import Running


class ProcessPool:
    """Child processes, one per running handler, kept for the next one."""

    async def run(self, running: Running, handler: Handler[Any, Any]) -> Any:
        """Run a handler in a child process."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End all children."""
