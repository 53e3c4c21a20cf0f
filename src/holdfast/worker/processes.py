"""Runs CPU-bound handlers in child processes that can be killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from multiprocessing import spawn
from socket import socketpair
from typing import Any, Self

import msgspec

from holdfast.app.handler import Handler
from holdfast.errors import ChildDied, HoldfastError, LeaseLost, Poison
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.telling import RemoteError
from holdfast.store.database import DatabaseConfig
from holdfast.worker import wire
from holdfast.worker.port import AttemptPort
from holdfast.worker.running import Running, TimedOut

# How long a child may take to start and to import its handler, to die, and to leave when asked, in seconds.
START_LIMIT = 60.0
DEATH_LIMIT = 5.0
LEAVE_LIMIT = 1.0
# What a child said last may be on its way for so long, in seconds; until then its line and time stay open.
ECHO = 0.2
# What a child must know to load __main__ as multiprocessing's spawn does.
MAIN_FACTS = ("sys_argv", "dir", "orig_dir", "init_main_from_name", "init_main_from_path")


class RemotePoison(RemoteError, Poison):
    """A handler in a child process declared its job hopeless, or its result cannot be kept."""


class ProcessPool:
    """Child processes, one for each running handler, kept for the next one."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._idle: list[Child] = []
        self._talks: set[asyncio.Task[Any]] = set()

    async def run(self, running: Running, handler: Handler[Any, Any], port: AttemptPort) -> Any:
        """Run a handler in a child process; whatever stops it from outside kills the child."""
        talk = asyncio.create_task(self._attempt(running, handler, port), name="holdfast child")
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        running.stop = talk.cancel
        try:
            await asyncio.wait({talk})
        finally:
            running.stop = None
            if not talk.done():
                talk.cancel()
        return talk.result()

    async def stop(self) -> None:
        """End all children: the busy ones at once, the idle ones by asking."""
        for talk in tuple(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.leave() for child in idle))

    async def _attempt(self, running: Running, handler: Handler[Any, Any], port: AttemptPort) -> Any:
        call = _call(running, handler)
        while True:
            warm = bool(self._idle)
            child = self._idle.pop() if warm else await Child.start(self._config)
            conversation = Conversation(child, running, port)
            try:
                return await conversation.hold(call)
            except ChildDied:
                # One that died while it waited for work says nothing about this handler.
                if not warm or conversation.begun:
                    raise
            finally:
                if conversation.ended and child.exit_code is None:
                    self._idle.append(child)
                else:
                    await child.kill()


def _call(running: Running, handler: Handler[Any, Any]) -> wire.Call:
    module, name = handler.function.__module__, handler.function.__qualname__
    facts = spawn.get_preparation_data("holdfast job") if module == "__main__" else None
    main = None if facts is None else {name: facts[name] for name in MAIN_FACTS if name in facts}
    return wire.Call(module, name, running.claimed, main)


class Child:
    """One child process and the line to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self._gone = asyncio.create_task(process.wait(), name="holdfast child's end")
        # A program that the handler started may hold the line open after the child's death.
        self._gone.add_done_callback(lambda _: asyncio.get_running_loop().call_later(ECHO, writer.close))

    @classmethod
    async def start(cls, config: DatabaseConfig) -> Self:
        """Start a child.  The DSN goes through the line: arguments and environment are for all to see."""
        ours, theirs = socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            # From the loop's own thread: the kernel kills the child when the thread that started it ends.
            process = await asyncio.create_subprocess_exec(
                *_command(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            undo.pop_all()
        child = cls(process, reader, writer)
        level = logging.getLogger().level
        child.write(wire.Setup(asdict(config), level))
        return child

    @property
    def exit_code(self) -> int | None:
        """What the process ended with, a signal as a negative number; None while it lives."""
        return self._process.returncode

    def write(self, message: wire.FromParent) -> None:
        """Send a message; one that a dead child does not get is noticed by `read`."""
        self._writer.write(wire.frame(message))

    async def read(self) -> wire.FromChild:
        """Wait for the child's next message; raises `ChildDied`."""
        try:
            header = await self._reader.readexactly(wire.HEADER_BYTES)
            return wire.from_child(await self._reader.readexactly(wire.body_bytes(header)))
        except (asyncio.IncompleteReadError, OSError):
            raise ChildDied(await self._end()) from None
        except (ValueError, msgspec.DecodeError) as error:
            raise ChildDied(f"said what nobody understands ({error})") from None

    async def _end(self) -> str:
        await asyncio.wait({self._gone}, timeout=DEATH_LIMIT)
        code = self.exit_code
        if code is None:
            return "closed its line to the worker"
        if code >= 0:
            return f"ended with exit code {code}"
        memory = " (the kernel does that when memory runs out)" if code == -signal.SIGKILL else ""
        return f"was killed by {_signal_name(-code)}{memory}"

    async def kill(self) -> None:
        """Kill the child with all that its handler started, and wait until it is dead."""
        if self.exit_code is None:
            # It leads a session of its own, so its process group is its family.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.wait({self._gone}, timeout=DEATH_LIMIT)
        self._writer.close()

    async def leave(self) -> None:
        """Let the child end by itself; kill it where it does not."""
        self._writer.close()
        await asyncio.wait({self._gone}, timeout=LEAVE_LIMIT)
        await self.kill()


def _command(channel: int) -> list[str]:
    # As multiprocessing does it: the same interpreter, flags and import path.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from holdfast.worker.child import main; main({channel}, {os.getpid()})"
    )
    return [os.fsdecode(spawn.get_executable()), *flags, "-c", code]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@asynccontextmanager
async def patience(seconds: float, end: Exception) -> AsyncIterator[None]:
    """Raise *end* in a block that takes longer than *seconds*, and than to hear what was said in that time.

    Where somebody has kept the loop for longer, all that the child said meanwhile is still on its way.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds

    def ring() -> None:
        late = loop.time() - due
        limit.reschedule(loop.time() + min(late, ECHO))

    timer = loop.call_at(due, ring)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise end from None
        raise
    finally:
        timer.cancel()


class Conversation:
    """What parent and child say to each other about one attempt."""

    def __init__(self, child: Child, running: Running, port: AttemptPort) -> None:
        self._child, self._running, self._port = child, running, port
        self.begun = self.ended = False

    async def hold(self, call: wire.Call) -> Any:
        """Have the handler run; answers what it returned, raises what it raised and `TimedOut`."""
        self._child.write(call)
        ending = await self._until_begun()
        if ending is None:
            async with patience(self._running.claimed.timeout, TimedOut()):
                while ending is None:
                    ending = await self._turn()
        self.ended = True
        return self._outcome(ending)

    async def _until_begun(self) -> wire.Ending | None:
        async with patience(START_LIMIT, ChildDied(f"did not begin its handler within {START_LIMIT:g} s")):
            ending = None
            while not self.begun and ending is None:
                ending = await self._turn()
            return ending

    async def _turn(self) -> wire.Ending | None:
        """Do what the child's next message wants; answers the message if it ends the conversation."""
        match message := await self._child.read():
            case wire.Begun():
                self.begun = True
            case wire.Progress(fraction, note):
                self._port.progress(fraction, note)
            case wire.Line(level, text):
                self._port.log(level, text)
            case wire.Settled(committed):
                self._running.end(committed)
            case wire.Save() | wire.Load() | wire.Delete() | wire.OpenUp() | wire.Settle():
                self._child.write(await self._answer(message))
            case _:
                return message
        return None

    async def _answer(self, wish: wire.Wanting) -> wire.Answer:
        value = None
        try:
            match wish:
                case wire.Save(state, version):
                    await self._port.save(state, version)
                case wire.Load(version):
                    value = await self._port.load(version)
                case wire.Delete():
                    await self._port.delete()
                case wire.OpenUp():
                    await self._port.open_up()
                case wire.Settle():
                    await self._port.settle()
        except HoldfastError as error:
            return wire.Answer(wish.wish, problem=wire.packed(error))
        return wire.Answer(wish.wish, value)

    def _outcome(self, ending: wire.Ending) -> Any:
        match ending:
            case wire.Returned(result):
                return None if result is None else msgspec.json.decode(result)
            case wire.Snoozed(seconds, reason):
                return Snooze(seconds, reason)
            case wire.Cancelled(reason):
                return Cancel(reason)
            case wire.Retried(seconds, reason):
                return Retry(seconds, reason)
            case wire.Raised(lost=True):
                raise LeaseLost(*self._running.fence)
            case wire.Raised(line, trace, record, poison):
                raise (RemotePoison if poison else RemoteError)(line, trace, record)
