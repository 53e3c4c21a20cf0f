"""Starts a program for an assignment, streams what it says, and ends it with all that it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socketpair
from typing import Any, Self

import msgspec

from holdfast.errors import ProgramRefused
from holdfast.runners.agent import keeper

# The most that is read at once, in bytes.
READ_SIZE = 64 * 1024
# How long the streams may stay open after everything that could write to them is dead, in seconds.
LONGEST_ECHO = 5.0
# A keeper hears of the runner each time that this part of what it was granted is over, or so many seconds.
BEAT, SHORTEST_BEAT = 0.25, 0.02

# Called with the name of a stream and its next bytes.
Listener = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run; *env* is all of its environment."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdin: bytes = b""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a program and all its children used; *wall_seconds* is how long it ran."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0
    blocks_read: int = 0
    blocks_written: int = 0
    wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program ended: *code* as a shell's parent sees it, a signal as a negative number.

    *code* is None where the program was lost with its keeper, or where that ended it because the runner had
    said nothing for too long: then it is *abandoned*.  *orphans* counts what it had left running.
    """

    code: int | None
    orphans: int = 0
    usage: Usage = field(default_factory=Usage)
    abandoned: bool = False

    @property
    def signal_name(self) -> str | None:
        """The name of the signal that ended it, or None."""
        if self.code is None or self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Told(msgspec.Struct):
    """A line of the keeper's."""

    began: int | None = None
    refused: str | None = None
    file: str | None = None
    ended: int | None = None
    orphans: int = 0
    usage: dict[str, float | int] | None = None


class Pipe:
    """What a program writes into: a real pipe.

    asyncio's own way to listen is a socket under uvloop, and ``echo … > /dev/stderr`` cannot open a socket.
    """

    def __init__(self, entrance: int, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.entrance, self.reader, self._transport = entrance, reader, transport

    @classmethod
    async def opened(cls, undo: ExitStack) -> Self:
        """Open a pipe, which *undo* closes again."""
        reading, entrance = os.pipe()
        reader = asyncio.StreamReader(limit=READ_SIZE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
        )
        pipe = cls(entrance, reader, transport)
        undo.callback(pipe.close)
        return pipe

    def close_entrance(self) -> None:
        """Leave the writing to the program: else its end would never be heard."""
        entrance, self.entrance = self.entrance, -1
        if entrance >= 0:
            os.close(entrance)

    def close(self) -> None:
        """Hang up."""
        self.close_entrance()
        self._transport.close()


class Program:
    """One program that runs, under a keeper of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pipes: Mapping[str, Pipe],
        listener: Listener,
    ) -> None:
        self._process, self._reader, self._writer, self._pipes = process, reader, writer, pipes
        self._began = asyncio.get_running_loop().time()
        self._beats: asyncio.TimerHandle | None = None
        self.pid = 0
        self._pumps = [
            asyncio.create_task(_pump(name, pipe.reader, listener), name=f"holdfast {name}")
            for name, pipe in pipes.items()
        ]

    @classmethod
    async def start(
        cls,
        command: Command,
        listener: Listener,
        *,
        channel: int | None = None,
        until: Callable[[], float] | None = None,
    ) -> Self:
        """Start *command*; raises `ProgramRefused` where the system will not.

        *listener* gets every piece of its output as soon as it is there.  *channel* is a file descriptor
        that the program inherits under the same number.  *until* is asked again and again when the program
        is to be killed unless that is put off, by the monotonic clock.  Its keeper does so, whether or not
        this process stands still: another runner may begin its job then.
        """
        ours, theirs = socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            passed = (theirs.fileno(),) if channel is None else (theirs.fileno(), channel)
            pipes = {name: await Pipe.opened(undo) for name in ("stdout", "stderr")}
            process = await _start_keeper(theirs.fileno(), passed, command.stdin, pipes)
            for pipe in pipes.values():
                pipe.close_entrance()
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            undo.pop_all()
        program = cls(process, reader, writer, pipes, listener)
        try:
            await program._begin(command, until)
        except BaseException:
            await program._leave()
            raise
        return program

    async def _begin(self, command: Command, until: Callable[[], float] | None) -> None:
        order = {
            "argv": list(command.argv),
            "cwd": str(command.cwd),
            "env": dict(command.env),
            "until": None if until is None else until(),
        }
        # Escaped as JSON's standard library does it, for a variable may hold bytes that are no text.
        self._writer.write(json.dumps(order).encode() + b"\n")
        told = await self._told()
        if told is None or told.began is None:
            name = (told and told.file) or command.argv[0]
            raise ProgramRefused(name, (told and told.refused) or "its keeper ended before it began")
        self.pid = told.began
        if until is not None:
            self._beat(until)

    def _beat(self, until: Callable[[], float]) -> None:
        """Say how long the program may live, and do so again in good time."""
        end = until()
        self._ask({"until": end})
        rest = max(SHORTEST_BEAT, (end - time.monotonic()) * BEAT)
        self._beats = asyncio.get_running_loop().call_later(rest, self._beat, until)

    def _ask(self, order: Mapping[str, float]) -> None:
        # After we have hung up uvloop raises, where asyncio passes over what is written.
        if self._writer.is_closing():
            return
        with suppress(OSError):
            self._writer.write(msgspec.json.encode(order) + b"\n")

    async def _told(self) -> Told | None:
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return msgspec.json.decode(line, type=Told) if line.endswith(b"\n") else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's whole group; SIGKILL also to what has left the group."""
        self._ask({"signal": int(number)})

    async def wait(self) -> ProgramEnd:
        """Wait until the program and all that it started are gone and all output was heard.

        Cancelled, it kills everything first.
        """
        try:
            told = await self._told()
            if told is None:
                # Its keeper was killed, and the program with it, but not what that had started.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            await asyncio.wait(self._pumps, timeout=LONGEST_ECHO)
        finally:
            await self._leave()
        wall = asyncio.get_running_loop().time() - self._began
        if told is None:
            return ProgramEnd(code=None, usage=Usage(wall_seconds=round(wall, 6)))
        usage: dict[str, Any] = {**(told.usage or {}), "wall_seconds": round(wall, 6)}
        return ProgramEnd(
            code=told.ended,
            orphans=told.orphans,
            usage=msgspec.convert(usage, Usage),
            abandoned=told.ended is None,
        )

    async def _leave(self) -> None:
        """Hang up, which has the keeper kill what is left and end."""
        if self._beats is not None:
            self._beats.cancel()
        self._writer.close()
        for pump in self._pumps:
            pump.cancel()
        for pipe in self._pipes.values():
            pipe.close()
        await asyncio.shield(self._process.wait())


async def _start_keeper(
    channel: int, passed: Sequence[int], stdin: bytes, pipes: Mapping[str, Pipe]
) -> asyncio.subprocess.Process:
    # A file instead of a pipe: nobody has to feed it, and a program that does not read blocks nobody.
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", os.fspath(keeper.__file__), str(channel)),
            stdin=file,
            stdout=pipes["stdout"].entrance,
            stderr=pipes["stderr"].entrance,
            pass_fds=tuple(passed),
            env={},
            start_new_session=True,
        )


async def _pump(name: str, stream: asyncio.StreamReader, listener: Listener) -> None:
    while data := await stream.read(READ_SIZE):
        listener(name, data)
