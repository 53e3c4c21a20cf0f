"""Keeps several worker processes running under one command."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.runtime.events import Events

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# A process that has lived this long was well: the next pause is the first one again.
WELL_AFTER = 60.0

DONE, FAILED, WRONG_USE = 0, 1, 2
# Ended by our signal before it could hear it: nothing had begun.
_UNBORN = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Command:
    """What one process is started with."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


class Supervisor:
    """Starts one process for each command and starts it again when it dies.

    A process that ends with 0 was drained and stays away; one that ends with 2 was given something no
    restart can mend, so all are stopped.  One that cannot even be started is tried again.
    Every process has a session of its own, so that Ctrl-C reaches it once, through us, and a pipe as its
    stdin, which ends when we die however we die.
    *patience* is how many seconds a stop may take before what is left is killed.
    """

    def __init__(self, commands: Sequence[Command], events: Events, *, patience: float) -> None:
        self._commands, self._events, self._patience = commands, events, patience
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Run until every process has ended for good; answers the exit code that tells the worst of them."""
        numbered = enumerate(self._commands)
        codes = await asyncio.gather(*(self._keep(number, command) for number, command in numbered))
        if self._killer is not None:
            self._killer.cancel()
        for code in (WRONG_USE, FAILED):
            if code in codes:
                return code
        return max(codes)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Pass a signal on to every process; the first one also begins the time until all are killed."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._killer = asyncio.get_running_loop().call_later(self._patience, self.kill)
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    def kill(self) -> None:
        """Kill what is left; its jobs are rescued."""
        for number, process in self._running.items():
            self._events.emit("process.killed", number=number, pid=process.pid)
            with suppress(ProcessLookupError):
                process.kill()

    async def _keep(self, number: int, command: Command) -> int:
        deaths = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                code, pid = await self._one_life(number, command)
            except OSError as error:
                # The machine has no room for another process, or what it is started from is being replaced.
                deaths += 1
                self._events.emit("process.unstarted", number=number, error=error, retry_in=_pause(deaths))
            else:
                if self._stopping.is_set() or code in (DONE, WRONG_USE):
                    return self._ended(number, pid, code)
                deaths = 1 if time.monotonic() - began > WELL_AFTER else deaths + 1
                facts = {"number": number, "pid": pid, "end": _end(code)}
                self._events.emit("process.died", **facts, retry_in=_pause(deaths))
            with suppress(TimeoutError):
                async with asyncio.timeout(_pause(deaths)):
                    await self._stopping.wait()
        return DONE

    async def _one_life(self, number: int, command: Command) -> tuple[int, int]:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            env=dict(command.environment),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._running[number] = process
        self._events.emit("process.started", number=number, pid=process.pid)
        if self._stopping.is_set():
            self.stop()
        try:
            return await process.wait(), process.pid
        finally:
            del self._running[number]

    def _ended(self, number: int, pid: int, code: int) -> int:
        self._events.emit("process.ended", number=number, pid=pid, end=_end(code))
        if code == WRONG_USE:
            self.stop()
        if code in _UNBORN:
            return DONE
        return FAILED if code < 0 else code


def _pause(deaths: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 1, 10))


def _end(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
