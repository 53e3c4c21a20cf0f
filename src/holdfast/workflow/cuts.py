"""Cancels from inside the code of a run, such as those of ``asyncio.timeout``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from holdfast.errors import DatabaseUnavailable
from holdfast.workflow.ledger import Ledger

T = TypeVar("T")

# How long a write that was cut short may take to end, in seconds.
GRACE = 5.0


def is_cut() -> bool:
    """True while a cancel of the current task has not been taken back."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unhurt(ledger: Ledger, work: Awaitable[T]) -> T:
    """Await *work*, to its end also where the code is cut short: half done, nobody knew what is recorded.

    Only who stops the attempt itself may interrupt it, for the next attempt reads the record.
    """
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not ledger.is_stopped():
            await asyncio.wait({future}, timeout=GRACE)
            if future.done() and not future.cancelled():
                return future.result()
            future.cancel()
            # Nobody knows whether it is recorded: the next attempt finds out.
            raise DatabaseUnavailable("what a run asked for was cut short before it was answered") from None
        future.cancel()
        raise
