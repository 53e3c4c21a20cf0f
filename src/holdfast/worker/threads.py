"""Runs sync handlers in threads that the process does not wait for at its end."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Call = Callable[[], Any]
# What a call came to: its value, or what it raised.
Result = tuple[Any, BaseException | None]
Order = tuple[Call, asyncio.Future[Result]]


class Threads:
    """As many threads as calls run at once, each kept for the next call.

    They are daemons: a handler that never returns must not keep its process from ending, as the threads of
    concurrent.futures would.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._free = 0
        self._all: list[threading.Thread] = []

    def run(self, call: Call) -> asyncio.Future[Result]:
        """Run *call* in a thread; the future gives what came of it, also where it raised."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        done.add_done_callback(self._freed)
        if self._free:
            self._free -= 1
        else:
            name = f"holdfast job {len(self._all)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._all.append(thread)
            thread.start()
        self._orders.put((call, done))
        return done

    def stop(self) -> None:
        """Let the threads end as soon as their calls have returned."""
        for _ in self._all:
            self._orders.put(None)
        self._all.clear()

    def _freed(self, _done: asyncio.Future[Result]) -> None:
        self._free += 1

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            call, done = order
            result = result_of(call)
            with suppress(RuntimeError):
                # The loop may have been closed while the call went on.
                done.get_loop().call_soon_threadsafe(_tell, done, result)
            # Keep nothing of the handler alive while waiting for the next one.
            del order, call, done, result


def result_of(call: Call) -> Result:
    """Return what came of *call*, also where it raised."""
    try:
        return call(), None
    except BaseException as error:
        # As a value, for a future cannot carry StopIteration and takes SystemExit for its loop's end.
        return None, error


def _tell(done: asyncio.Future[Result], result: Result) -> None:
    if not done.done():
        done.set_result(result)
