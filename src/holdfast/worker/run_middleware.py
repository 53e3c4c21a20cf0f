"""A run inside the middleware of its application: that sees what becomes of it, and decides none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.model.outcome import Fail, Retry, Snooze, Stop, Suspend
from holdfast.workflow.execution import Execution

Call = Callable[[], Awaitable[Any]]

ENDS = (Fail, Stop)
RESTS = (Suspend, Snooze, Retry)


class SurroundedRun:
    """One attempt of a run, with middleware around it.

    The middleware is answered with the result of the run, or with None where the attempt comes to anything
    else.  What the code has raised passes through it.  It may change the result, and fail an attempt that
    comes to rest, by an error of its own.
    """

    def __init__(self, execution: Execution, is_cancelled: Callable[[], bool]) -> None:
        self._execution, self._is_cancelled = execution, is_cancelled
        self._has_begun = False
        # What the attempt has come to, and whether that is no result; or what kept it from that.
        self._came_to: Any = None
        self._is_decided = False
        self._broken: BaseException | None = None

    async def go_on(self, surround: Callable[[Call], Call]) -> Any:
        """Go on with the run, inside what *surround* makes of a call: answers what the attempt comes to."""
        try:
            returned = await surround(self._perform)()
        except BaseException as error:
            is_cancel = isinstance(error, asyncio.CancelledError) and self._is_cancelled()
            if is_cancel and not self._has_begun:
                # As if it had come when the run had begun: there may be something to make up for.
                _stop_again()
                return await self._execution.perform()
            if self._broken is None and not is_cancel and self._may_fail_by(error):
                raise
            returned = self._came_to
        if self._broken is not None:
            raise self._broken
        return self._came_to if self._is_decided else returned

    async def _perform(self) -> Any:
        self._has_begun = True
        try:
            self._came_to = await self._execution.perform()
        except BaseException as error:
            self._broken = error
            raise
        self._is_decided = isinstance(self._came_to, ENDS + RESTS)
        if self._execution.error is not None:
            raise self._execution.error
        return None if self._is_decided else self._came_to

    def _may_fail_by(self, error: BaseException) -> bool:
        """Whether an error of the middleware's own counts: the run has not ended, nor has its code raised."""
        if not self._is_decided:
            return True
        is_at_rest = isinstance(self._came_to, RESTS) and self._execution.error is None
        return is_at_rest and isinstance(error, Exception)


def _stop_again() -> None:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - slots are tasks
    task.cancel()
