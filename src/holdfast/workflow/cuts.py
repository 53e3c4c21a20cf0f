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

    Only who stops the attempt itself may interrupt it, for the next attempt reads the record.  At a cancel of
    the run this attempt reads it: what is under way is left to its end, for which `Ledger.load` waits.
    """
    future = asyncio.ensure_future(work)
    try:
        return await _seen_out(ledger, future)
    finally:
        if not future.done():
            if ledger.is_cancelled():
                ledger.leave(future)
            else:
                future.cancel()


async def _seen_out(ledger: Ledger, future: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if ledger.is_stopped():
            raise
    await asyncio.wait({future}, timeout=GRACE)
    if future.done() and not future.cancelled():
        return future.result()
    # Nobody knows whether it is recorded: the next attempt finds out.
    raise DatabaseUnavailable("what a run asked for was cut short before it was answered")
