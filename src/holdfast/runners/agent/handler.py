"""What runs in the process of a handler on a runner: one handler, on the main thread, and then the end.

A SIGINT cancels an async handler and raises ``KeyboardInterrupt`` in a sync one.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NoReturn

from holdfast.app.handler import Executor, Handler
from holdfast.app.job import Job, Transaction
from holdfast.app.registry import App
from holdfast.errors import DatabaseOutOfReach
from holdfast.model.job import ClaimedJob
from holdfast.worker import endings, wire

LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


def main(address: str, channel: int) -> NoReturn:
    """Run the handler that the socket *channel* asks for, with the application at *address*."""
    line = socket.socket(fileno=channel)
    # What the handler starts must not keep the line open.
    os.set_inheritable(channel, False)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    claimed = _claimed(line)
    line.sendall(wire.frame(_ending(address, claimed, ChannelPort(line))))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the handler left must not keep the slot.
    os._exit(0)


def _claimed(line: socket.socket) -> ClaimedJob:
    with line.makefile("rb") as stream:
        call = wire.from_parent(stream.read(wire.body_bytes(stream.read(wire.HEADER_BYTES))))
    assert isinstance(call, wire.Call)  # noqa: S101 - nothing else is ever sent
    return call.claimed


def _ending(address: str, claimed: ClaimedJob, port: ChannelPort) -> wire.Ending:
    try:
        return endings.answered(claimed.kind, _call(_app(address), claimed, Job(claimed, port)))
    except BaseException as error:
        return endings.raised(error, claimed)


def _app(address: str) -> App:
    """Import the application; the runner has made sure at its start that it is there."""
    module, _, path = address.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert isinstance(found, App)  # noqa: S101 - checked at the start
    return found


def _call(app: App, claimed: ClaimedJob, job: Job) -> Any:
    handler = app.handler(claimed.kind)
    arguments = handler.signature.decode(claimed.args)
    if handler.signature.job_parameter is not None:
        arguments[handler.signature.job_parameter] = job
    if handler.executor is not Executor.LOOP:
        # Taken from asyncio, which would cancel a task that never waits.
        signal.signal(signal.SIGINT, _interrupt)
        if not app.middlewares and not app.lifespans:
            return handler.function(**arguments)
    return asyncio.run(_surrounded(app, handler, arguments, job))


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


async def _surrounded(app: App, handler: Handler[Any, Any], arguments: dict[str, Any], job: Job) -> Any:
    async def innermost() -> Any:
        returned = handler.function(**arguments)
        return await returned if handler.executor is Executor.LOOP else returned

    call: Callable[[], Awaitable[Any]] = innermost
    for middleware in reversed(app.middlewares):
        call = partial(middleware, job, call)
    async with AsyncExitStack() as stack:
        for span in app.lifespans:
            await stack.enter_async_context(span())
        return await call()


class ChannelPort:
    """What stands behind the `Job` of a handler on a runner: all but progress needs the database."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress."""
        self._line.sendall(wire.frame(wire.Progress(fraction, note)))

    def save_checkpoint(self, state: Any, version: int) -> Any:  # noqa: ARG002
        """Refuse."""
        raise DatabaseOutOfReach("a checkpoint")

    def load_checkpoint(self, version: int) -> Any:  # noqa: ARG002
        """Refuse."""
        raise DatabaseOutOfReach("a checkpoint")

    def delete_checkpoint(self) -> Any:
        """Refuse."""
        raise DatabaseOutOfReach("a checkpoint")

    def transaction(self, job: Job) -> Transaction:  # noqa: ARG002
        """Refuse."""
        raise DatabaseOutOfReach("job.transaction()")
